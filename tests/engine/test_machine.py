"""The real ports of a repository, put together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mz_engine.secrets import environment_secrets, is_secret, parse_dotenv, project_secrets

from tests.support.gitrepo import GitRepo

RACE = """
import threading
from mz_engine.artifacts.command_output import count_runs, excerpt, output_patterns
output_patterns()
start = threading.Barrier(8)
def work():
    start.wait()
    excerpt(b"1 failed"), count_runs(b"1 passed")
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


@pytest.mark.slow
def test_feature_threads_find_their_tables_read() -> None:
    """msgspec learns a type at its first conversion; two threads that do so at once can crash the interpreter."""
    for _ in range(5):
        subprocess.run([sys.executable, "-c", RACE], check=True, timeout=60)


def test_secrets_are_known_by_the_names_of_their_variables() -> None:
    texts = environment_secrets(
        {
            "ANTHROPIC_API_KEY": "a",
            "DEPLOY_TOKEN": "b",
            "DB_PASSWORD": "c",
            "SSH_AUTH_SOCK": "/run/x",
            "TOKEN_URL": "u",
            "MZ_KEY": "k",
            "PATH": os.environ["PATH"],
        }
    )
    assert sorted(texts) == ["ANTHROPIC_API_KEY", "DB_PASSWORD", "DEPLOY_TOKEN"]


@pytest.mark.parametrize(
    "name",
    [
        "GH_PAT",
        "GITLAB_PAT_RW",
        "DB_PWD",
        "MYSQLPWD",
        "GPG_PASSPHRASE",
        "DB_PASS",
        "PGPASSWORD",
        "SESSION_COOKIE",
        "SLACK_WEBHOOK",
        "SLACK_WEBHOOK_URL",
        "SENTRY_DSN",
        "AZURE_STORAGE_CONNECTION_STRING",
        "BLOB_SAS",
        "JWT",
        "BEARER",
        "TOTP",
        "WALLET_MNEMONIC",
        "RAILS_CREDENTIALS",
        "AUTHORIZATION",
        "NPM_AUTH",
        "PASSWORD_SALT",
        "PRIVATE_PEM",
        "WEBHOOK_SIGNATURE",
        "DB_CONN_STR",
    ],
)
def test_more_names_of_secrets(name: str) -> None:
    assert is_secret(name)
    assert is_secret(name.lower())


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "PWD",
        "OLDPWD",
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_DATE",
        "AUTHORS",
        "XAUTHORITY",
        "COOKIE_DOMAIN",
        "COOKIE_NAME",
        "PATTERN",
        "COMPASS",
        "BYPASS_CI",
        "JWT_ALGORITHM",
        "TOKEN_URL",
        "AWS_ACCESS_KEY_ID",
        "SSH_AUTH_SOCK",
        "TOKEN_TTL",
        "SASS",
    ],
)
def test_names_that_only_resemble_those_of_secrets(name: str) -> None:
    assert not is_secret(name)


def test_a_password_in_the_url_of_any_variable_is_a_secret() -> None:
    texts = environment_secrets(
        {
            "DATABASE_URL": "postgres://shop:a%2Fb-long-password@db.example/shop",
            "CACHE_URL": "redis://localhost:6379/0",
            "DEV_URL": "postgres://postgres:postgres@localhost/dev",
            "PIP_INDEX_URL": "https://0123456789abcdef0123@pypi.example/simple",
        }
    )
    assert texts == {"DATABASE_URL": "a/b-long-password", "PIP_INDEX_URL": "0123456789abcdef0123"}


def test_secrets_that_lie_in_a_repository_without_being_in_git(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path)
    repository.commit({".env.example": "API_KEY=put-your-own-key-here\n"})
    dotenv = "# login\nexport API_KEY='0123456789abc'\nDEV_KEY=short\nDB=pg://u:secret-of-the-db@h/x # local\n"
    repository.write({".env": dotenv, ".env.local": 'OTHER_TOKEN="abcdefghijklm"\n'})
    repository.git("remote", "add", "origin", "https://bot:secret-of-the-bot@git.example/x.git")
    repository.git("config", "http.https://git.example/.extraheader", "AUTHORIZATION: basic c2VjcmV0LW9mLWNp")
    assert (
        project_secrets(tmp_path, os.environ | {"CI_TOKEN": "of the environment"}).items()
        >= {
            "API_KEY": "0123456789abc",
            "DB": "secret-of-the-db",
            "OTHER_TOKEN": "abcdefghijklm",
            "GIT_LOGIN_1": "secret-of-the-bot",
            "GIT_LOGIN_2": "c2VjcmV0LW9mLWNp",
            "CI_TOKEN": "of the environment",
        }.items()
    )
    assert "put-your-own-key-here" not in project_secrets(tmp_path, {}).values()
    assert "DEV_KEY" not in project_secrets(tmp_path, {})


def test_where_there_is_no_repository_the_environment_is_all(tmp_path: Path) -> None:
    assert project_secrets(tmp_path, {"PATH": os.environ["PATH"], "A_TOKEN": "x"}) == {"A_TOKEN": "x"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("API_TOKEN=Zx9#qwertyuiop1234567890", "Zx9#qwertyuiop1234567890"),
        ("API_TOKEN=qwertyuiop # mine", "qwertyuiop"),
        ("API_TOKEN= # none yet, ask somebody", None),
        ('API_TOKEN="ab\\"cdefgh\\\\ij\\nkl" # mine', 'ab"cdefgh\\ij\nkl'),
        ("API_TOKEN='ab\\ncd # efgh'", "ab\\ncd # efgh"),
        ("API_TOKEN=`abcd'efgh`\r\n", "abcd'efgh"),
        ('API_TOKEN="line one\nOTHER_KEY=within\nline three"\n', "line one\nOTHER_KEY=within\nline three"),
        ('API_TOKEN="never-closed\nOTHER_KEY="0123456789"', "never-closed"),
        ("API_TOKEN=abcdefghijk", "abcdefghijk"),
        ("API_TOKEN=PostGres", None),
        ("# API_TOKEN=abcdefghijk", None),
    ],
)
def test_what_a_line_of_a_dotenv_file_means(text: str, value: str | None) -> None:
    dotenv = parse_dotenv(f"NAME=x\n{text}")
    assert dotenv.get("API_TOKEN") == value
    assert dotenv.get("OTHER_KEY") == ("0123456789" if "never" in text else None)


def test_a_dotenv_file_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".env").symlink_to("/proc/self/mem")
    (tmp_path / ".env.local").write_text("\ufeffAPI_TOKEN=abcdefghijk\n")
    assert project_secrets(tmp_path, {"PATH": os.environ["PATH"]}) == {"API_TOKEN": "abcdefghijk"}
