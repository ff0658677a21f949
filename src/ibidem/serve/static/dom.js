// Elements of the page, its status message and its form for the key.
// Texts of users, models and memories are always inserted as text, never as HTML.

import { explain } from "./api.js";
import { state } from "./state.js";

const SHOWN = 8_000; // milliseconds that a message without a button is shown

export const $ = (id) => document.getElementById(id);
export const count = (number, singular, plural = `${singular}s`) => `${number.toLocaleString("en")} ${number === 1 ? singular : plural}`;

let timer = 0;

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (attribute === "class") element.className = value;
    else if (value === true) element.setAttribute(attribute, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(attribute, value);
  }
  element.append(...children);
  return element;
}

export function makeButton(text, action, attributes = {}) {
  const button = make("button", { type: "button", ...attributes }, text);
  button.addEventListener("click", action);
  return button;
}

// Shows a message above the page until the next one; `undo` is called by its button.
export function showStatus(message, { wrong = false, undo = null } = {}) {
  clearTimeout(timer);
  const status = $("status");
  status.classList.toggle("wrong", wrong);
  if (!message) {
    status.replaceChildren();
    return;
  }
  status.replaceChildren(make("span", {}, message));
  if (undo) {
    status.append(makeButton("Undo", () => {
      showStatus("");
      undo();
    }));
  }
  if (undo || wrong) status.append(makeButton("Close", () => showStatus(""), { class: "quiet" }));
  else timer = setTimeout(() => showStatus(""), SHOWN);
}

export function showError(error) {
  if (error.name === "AbortError") return;
  if (error.status === 403 && state.settings?.keyRequired) showKeyForm();
  showStatus(explain(error), { wrong: true });
}

export function showKeyForm() {
  $("key-form").hidden = false;
  $("key").focus();
}
