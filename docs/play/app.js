// Tabs, theme, and the start of what the page offers.
import { startCurves } from "./curves.js";

const root = document.documentElement;

function startTheme() {
  const saved = storage((s) => s.getItem("metafun-theme"));
  if (saved) root.dataset.theme = saved;
  document.getElementById("theme").addEventListener("click", () => {
    const systemIsDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : systemIsDark;
    root.dataset.theme = isDark ? "light" : "dark";
    storage((s) => s.setItem("metafun-theme", root.dataset.theme));
  });
}

/** Browsers may forbid storage. */
function storage(use) {
  try {
    return use(localStorage);
  } catch {
    return null;
  }
}

function startTabs(offered) {
  const tabs = [...document.querySelectorAll("[role=tab]")].filter((tab) => offered.includes(tab.getAttribute("aria-controls")));
  document.querySelectorAll("[role=tab]").forEach((tab) => (tab.hidden = !tabs.includes(tab)));
  document.querySelector("[role=tablist]").hidden = tabs.length < 2;
  const select = (tab, focus) => {
    for (const other of document.querySelectorAll("[role=tab]")) {
      const isSelected = other === tab;
      other.setAttribute("aria-selected", isSelected);
      other.tabIndex = isSelected ? 0 : -1;
      const panel = document.getElementById(other.getAttribute("aria-controls"));
      if (panel) panel.hidden = !isSelected;
    }
    if (focus) tab.focus();
    history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) select(tabs[(i + step + tabs.length) % tabs.length], true);
    });
  });
  const wanted = tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash);
  if (wanted) select(wanted);
}

async function start() {
  startTheme();
  const info = await (await fetch("info.json")).json();
  startTabs(info.tabs ?? ["curves"]);
  if (info.glyphs) {
    const { startGlyphs } = await import("./glyphs.js");
    startGlyphs(info.glyphs);
  }
  if (info.tabs?.includes("table")) {
    const { startTable } = await import("./table.js");
    startTable();
  }
  await startCurves(info.curves);
  root.dataset.ready = "true";
}

start();
