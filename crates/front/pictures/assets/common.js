"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
  return (unit === 0 ? String(n) : n.toFixed(1)) + " " + units[unit];
}

// A share as the terminal shows it: the last digit is not rounded up.
function percent(part, whole) {
  return whole > 0 ? (Math.floor(part * 1000 / whole) / 10).toFixed(1) + " %" : "";
}

function time(micros) {
  if (micros < 1e3) return micros.toFixed(0) + " \u00b5s";
  if (micros < 1e6) return (micros / 1e3).toFixed(2) + " ms";
  return (micros / 1e6).toFixed(3) + " s";
}

const count = (n) => n.toLocaleString("en");

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

// A table of figures. `cells` are texts or numbers; `key` names the row for programs that read the page.
function row(table, key, cells) {
  const line = table.insertRow();
  line.dataset.key = key;
  for (const cell of cells) {
    const box = line.insertCell();
    box.textContent = typeof cell === "number" ? count(cell) : cell;
    if (typeof cell === "number") box.dataset.value = String(cell);
  }
  return line;
}

function head(table, names) {
  const line = table.createTHead().insertRow();
  for (const name of names) {
    const box = document.createElement("th");
    box.scope = "col";
    box.textContent = name;
    line.append(box);
  }
  table.createTBody();
  return table.tBodies[0];
}

function swatch(parent, name, text) {
  const item = document.createElement("span");
  const box = document.createElement("i");
  box.className = "swatch";
  box.style.background = "var(--c-" + name + ")";
  item.append(box, text);
  parent.append(item);
  return item;
}

// Prepares a canvas for drawing in CSS pixels.
function surface(canvas) {
  const scale = window.devicePixelRatio || 1;
  const box = canvas.getBoundingClientRect();
  const width = Math.max(50, Math.floor(box.width)), height = Number(canvas.dataset.height);
  canvas.style.height = height + "px";
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  return { pen, width, height };
}

const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);

function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, window.innerWidth - box.width - 8)) + "px";
  tip.style.top = Math.max(4, Math.min(y + 14, window.innerHeight - box.height - 8)) + "px";
}

function hideTip() { tip.hidden = true; }

// Steps of a scale that people read: 1, 2 and 5 times a power of ten, or of two for bytes.
function steps(from, to, most, binary) {
  const span = to - from;
  if (!(span > 0)) return [from];
  let step;
  if (binary) {
    step = Math.pow(2, Math.ceil(Math.log2(span / most)));
  } else {
    const power = Math.pow(10, Math.floor(Math.log10(span / most)));
    step = [1, 2, 5, 10].map((n) => n * power).find((n) => span / n <= most) || 10 * power;
  }
  const out = [];
  for (let at = Math.ceil(from / step) * step; at <= to && out.length < 50; at += step) out.push(at);
  return out;
}

// The labels of a horizontal axis, without those that would touch the one before them.
function labels(pen, marks, place, text, from, to, y) {
  let free = from;
  pen.textAlign = "center";
  for (const mark of marks) {
    const half = pen.measureText(text(mark)).width / 2, at = Math.min(Math.max(place(mark), from + half), to - half);
    if (at - half < free) continue;
    pen.fillText(text(mark), at, y);
    free = at + half + 8;
  }
}

// Draws again when the size or the colours change.
function keepDrawn(draw) {
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) { width = window.innerWidth; draw(); }
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}
