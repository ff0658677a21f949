// Elements by their id, and new ones. Whatever comes from a user, a model or a memory is put in as text.

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
