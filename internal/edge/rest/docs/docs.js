// Finds operations and schemas by words, and opens what a link leads to. The page is complete
// without it.
"use strict";

const search = document.getElementById("search");
const found = document.getElementById("found");
const entries = Array.from(document.querySelectorAll("main details"), (element) => ({ element, text: element.textContent.toLowerCase() }));
const sections = Array.from(document.querySelectorAll("main section"));

function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const { element, text } of entries) {
    element.hidden = !words.every((word) => text.includes(word));
    if (!element.hidden) count++;
  }
  for (const section of sections) {
    section.hidden = words.length > 0 && !section.querySelector("details:not([hidden])");
  }
  found.textContent = words.length > 0 ? count + " found" : "";
}

function open() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") {
    if (target.hidden) {
      search.value = "";
      show();
    }
    target.open = true;
    target.scrollIntoView();
  }
}

search.addEventListener("input", show);
window.addEventListener("hashchange", open);
open();
