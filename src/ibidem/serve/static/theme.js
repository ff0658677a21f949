// The theme: a script that the page loads first, so that the right colours are drawn at once.
"use strict";

(() => {
  const THEMES = ["auto", "light", "dark"];

  const stored = () => {
    try { return localStorage.getItem("theme"); } catch { return null; }
  };
  let theme = THEMES.includes(stored()) ? stored() : "auto";

  function set() {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${theme}`;
  }

  function change() {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try { localStorage.setItem("theme", theme); } catch { /* without storage the theme lasts until the page is closed */ }
    set();
  }

  set();
  document.addEventListener("DOMContentLoaded", () => {
    set();
    document.getElementById("theme").addEventListener("click", change);
  });
})();
