
"use strict";
const groups = [...document.querySelectorAll(".group")];
const form = document.querySelector(".filters");
if (form) {
  const seek = form.querySelector("[type=search]");
  const boxes = [...form.querySelectorAll("[type=checkbox]")];
  const output = form.querySelector("output");
  const nothing = document.querySelector(".nothing");
  const show = () => {
    const words = seek.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kinds = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const fits = (each) => words.every((word) => each.dataset.search.includes(word));
    let shown = 0;
    for (const each of groups) {
      each.hidden = !(kinds.has(each.dataset.kind) && fits(each));
      shown += each.hidden ? 0 : 1;
    }
    output.textContent = shown === groups.length ? "" : `${shown} of ${groups.length} shown`;
    nothing.hidden = shown > 0;
  };
  const turn = (open) => groups.forEach((each) => { if (!each.hidden) each.open = open; });
  form.hidden = false;
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.querySelector(".open").addEventListener("click", () => turn(true));
  form.querySelector(".close").addEventListener("click", () => turn(false));
  show();
}
if (navigator.clipboard) {
  for (const button of document.querySelectorAll(".copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
}
addEventListener("beforeprint", () => groups.forEach((each) => { each.open = true; }));
