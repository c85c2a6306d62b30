/* A `claude` that does no work: it takes its prompt, writes the files that were prepared for the feature and the phase
   that MZ_KEY names (run/feature/phase/...), and prints the prepared stream. ANSWERS is the directory of the prepared
   records: PATH, a line end, the number of bytes, a line end, the bytes. A path that ends in a slash is a directory,
   the path "-" is standard output. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SESSION "00000000-0000-4000-8000-000000000000"
#define SESSION_LENGTH (sizeof SESSION - 1)

static void put(int file, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t written = write(file, data, size);
        if (written <= 0)
            exit(1);
        data += written;
        size -= (size_t)written;
    }
}

static char *load(const char *path, size_t *size)
{
    struct stat status;
    int file = open(path, O_RDONLY);
    char *data;
    if (file < 0 || fstat(file, &status) != 0)
        exit(2);
    *size = (size_t)status.st_size;
    data = malloc(*size + 1);
    if (data == NULL || read(file, data, *size) != (ssize_t)*size)
        exit(2);
    data[*size] = 0;
    close(file);
    return data;
}

static void name_session(char *text, int count, char **words)
{
    char *place;
    int at;
    for (at = 1; at + 1 < count; at++)
        if (strcmp(words[at], "--session-id") == 0 && strlen(words[at + 1]) == SESSION_LENGTH)
            for (place = strstr(text, SESSION); place != NULL; place = strstr(place + 1, SESSION))
                memcpy(place, words[at + 1], SESSION_LENGTH);
}

static void answer(char *at, char *end)
{
    while (at < end) {
        char *path = at, *size = strchr(at, '\n') + 1, *data = strchr(size, '\n') + 1;
        size_t length = strtoul(size, NULL, 10);
        size[-1] = 0;
        if (strcmp(path, "-") == 0)
            put(STDOUT_FILENO, data, length);
        else if (size[-2] == '/')
            mkdir(path, 0777);
        else {
            int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
            if (file < 0)
                exit(3);
            put(file, data, length);
            close(file);
        }
        at = data + length;
    }
}

int main(int count, char **words)
{
    char prompt[65536], path[4096], *key = getenv("MZ_KEY"), *feature, *phase, *data;
    size_t size;
    if (count > 1 && strcmp(words[1], "--version") == 0) {
        puts("2.1.197 (Claude Code)");
        return 0;
    }
    while (read(STDIN_FILENO, prompt, sizeof prompt) > 0)
        ;
    feature = key == NULL ? NULL : strchr(key, '/');
    phase = feature == NULL ? NULL : strchr(feature + 1, '/');
    if (phase == NULL)
        return 4;
    snprintf(path, sizeof path, "%s/%.*s.%.*s", ANSWERS, (int)(phase - feature - 1), feature + 1,
             (int)strcspn(phase + 1, "/"), phase + 1);
    data = load(path, &size);
    name_session(data, count, words);
    answer(data, data + size);
    return 0;
}
