// Elements of the page, its status line and its form for the key.
// Texts of users, models and memories are always inserted as text, never as HTML.

import { state } from "./state.js";

export const $ = (id) => document.getElementById(id);

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (attribute === "class") element.className = value;
    else if (value === true) element.setAttribute(attribute, "");
    else if (value !== false && value !== null) element.setAttribute(attribute, value);
  }
  element.append(...children);
  return element;
}

export function showStatus(message, { wrong = false, undo = null } = {}) {
  const status = $("status");
  status.classList.toggle("wrong", wrong);
  status.replaceChildren(message);
  if (undo) {
    const button = make("button", { type: "button" }, "Undo");
    button.addEventListener("click", undo);
    status.append(button);
  }
}

export function showError(error) {
  if (error.name === "AbortError") return;
  if (error.status === 403 && state.settings?.keyRequired) showKeyForm();
  showStatus(error.status ? error.message : "The server cannot be reached.", { wrong: true });
}

export function showKeyForm() {
  $("key-form").hidden = false;
  $("key").focus();
}
