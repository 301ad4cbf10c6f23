const figures = data.figures;
// Wide enough for paths, where there is room.
const LEFT = window.innerWidth >= 900 ? 280 : 150, BOTTOM = 20, TOP = 6, RIGHT = 8, ROW = 20;
const shown = new Set(data.drawn.map((part) => part.class));
const whole = extent();
const view = { ...whole };
let chosen = -1;

// The range of times and offsets of all points.
function extent() {
  let low = Infinity, high = 0;
  for (const part of data.drawn) {
    for (const [, , offset, len] of part.points) {
      low = Math.min(low, offset);
      high = Math.max(high, offset + len);
    }
  }
  if (low > high) { low = 0; high = 1; }
  return { t0: 0, t1: Math.max(1, figures.micros), y0: low, y1: Math.max(low + 1, high) };
}

// All points that are shown, in the order of their starts.
function points() {
  const all = [];
  for (const part of data.drawn) {
    if (!shown.has(part.class)) continue;
    for (const point of part.points) all.push({ class: part.class, point });
  }
  return all.sort((a, b) => a.point[0] - b.point[0]);
}
let sorted = points();

function scaleX(width) {
  const room = width - LEFT - RIGHT;
  return (t) => LEFT + (t - view.t0) / (view.t1 - view.t0) * room;
}

function scaleY(height) {
  const room = height - TOP - BOTTOM;
  return (y) => height - BOTTOM - (y - view.y0) / (view.y1 - view.y0) * room;
}

function axes(pen, width, height, marks, place, label) {
  pen.strokeStyle = colour("line");
  pen.fillStyle = colour("dim");
  pen.lineWidth = 1;
  const x = scaleX(width);
  const times = steps(view.t0, view.t1, 10, false);
  for (const t of times) {
    const at = Math.round(x(t)) + 0.5;
    pen.beginPath(); pen.moveTo(at, TOP); pen.lineTo(at, height - BOTTOM); pen.stroke();
  }
  labels(pen, times, x, time, LEFT - 16, width - 4, height - 6);
  pen.textAlign = "right";
  for (const mark of marks) {
    const at = Math.round(place(mark)) + 0.5;
    pen.beginPath(); pen.moveTo(LEFT, at); pen.lineTo(width - RIGHT, at); pen.stroke();
    pen.fillText(label(mark), LEFT - 6, at + 4);
  }
}

function clip(pen, width, height) {
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, TOP, width - LEFT - RIGHT, height - TOP - BOTTOM);
  pen.clip();
}

function drawSeek() {
  const { pen, width, height } = surface(byId("seek"));
  const x = scaleX(width), y = scaleY(height);
  axes(pen, width, height, steps(view.y0, view.y1, 8, true), y, bytes);
  clip(pen, width, height);
  let drawn = 0;
  for (const part of data.drawn) {
    if (!shown.has(part.class)) continue;
    const normal = colour("c-" + part.class), bad = colour("c-failed");
    for (const [start, took, offset, len, , failed] of part.points) {
      if (start > view.t1 || start + took < view.t0 || offset > view.y1 || offset + len < view.y0) continue;
      drawn += 1;
      pen.fillStyle = failed ? bad : normal;
      const left = x(start), top = y(offset + len);
      const wide = Math.max(failed ? 5 : 2.5, x(start + took) - left), high = Math.max(failed ? 5 : 2.5, y(offset) - top);
      pen.fillRect(left, top, wide, high);
    }
  }
  if (sorted[chosen]) {
    const [start, took, offset, len] = sorted[chosen].point;
    pen.strokeStyle = colour("fore");
    pen.lineWidth = 1.5;
    pen.strokeRect(x(start) - 4, y(offset + len) - 4, x(start + took) - x(start) + 8, y(offset) - y(offset + len) + 8);
  }
  pen.restore();
  byId("seek").dataset.drawn = String(drawn);
}

function largest(list) { return list.reduce((most, n) => Math.max(most, n), 0); }

// The bins that the view shows.
function bins(each) {
  const first = Math.max(0, Math.floor(view.t0 / data.width));
  const last = Math.min(data.device.length - 1, Math.ceil(view.t1 / data.width));
  for (let bin = first; bin <= last; bin += 1) each(bin);
}

function drawFlight() {
  const { pen, width, height } = surface(byId("flight"));
  let most = 1;
  bins((bin) => { most = Math.max(most, data.device[bin], data.server[bin]); });
  const x = scaleX(width), room = height - TOP - BOTTOM;
  const y = (n) => height - BOTTOM - n / most * room;
  axes(pen, width, height, [0, most / 2, most], y, (n) => bytes(Math.round(n)));
  clip(pen, width, height);
  for (const [name, list] of [["device", data.device], ["server", data.server]]) {
    pen.fillStyle = colour("c-" + name);
    pen.globalAlpha = 0.75;
    bins((bin) => {
      if (list[bin] === 0) return;
      const left = x(bin * data.width);
      pen.fillRect(left, y(list[bin]), Math.max(1, x((bin + 1) * data.width) - left), height - BOTTOM - y(list[bin]));
    });
  }
  pen.restore();
  pen.globalAlpha = 1;
}

const OUTCOMES = ["hits", "waits", "misses"];

function drawCache() {
  const { pen, width, height } = surface(byId("cache"));
  let most = 1;
  bins((bin) => { const [a, b, c] = data.lookups[bin]; most = Math.max(most, a + b + c); });
  const x = scaleX(width), room = height - TOP - BOTTOM;
  const y = (n) => height - BOTTOM - n / most * room;
  axes(pen, width, height, [0, most], y, (n) => count(Math.round(n)));
  clip(pen, width, height);
  const colours = OUTCOMES.map((name) => colour("c-" + name));
  bins((bin) => {
    const left = x(bin * data.width), wide = Math.max(1, x((bin + 1) * data.width) - left);
    let below = 0;
    data.lookups[bin].forEach((n, kind) => {
      pen.fillStyle = colours[kind];
      pen.fillRect(left, y(below + n), wide, y(below) - y(below + n));
      below += n;
    });
  });
  pen.restore();
}

const named = (file) => file.path === null ? "file " + file.node : file.path;

function drawWaterfall() {
  const canvas = byId("waterfall");
  canvas.dataset.height = String(Math.max(2, data.files.length) * ROW + TOP + BOTTOM);
  const { pen, width, height } = surface(canvas);
  const x = scaleX(width);
  axes(pen, width, height, [], null, null);
  clip(pen, width, height);
  data.files.forEach((file, index) => {
    const top = TOP + index * ROW;
    pen.fillStyle = colour(file.writes > file.reads ? "c-write" : "c-data");
    for (const [start, end] of file.bars) {
      pen.fillRect(x(start), top + 3, Math.max(2, x(end) - x(start)), ROW - 7);
    }
  });
  pen.restore();
  pen.fillStyle = colour("dim");
  pen.textAlign = "right";
  data.files.forEach((file, index) => {
    pen.fillText(fitted(pen, named(file), "  " + millis(file.micros)), LEFT - 6, TOP + index * ROW + 13);
  });
}

const millis = (micros) => (micros / 1e3).toFixed(2) + " ms";

// A path and its time, with so much of the end of the path as fits beside the graph.
function fitted(pen, path, time) {
  const room = LEFT - 10;
  if (pen.measureText(path + time).width <= room) return path + time;
  path = path.slice(-100);
  while (path && pen.measureText("\u2026" + path + time).width > room) path = path.slice(1);
  return "\u2026" + path + time;
}

function drawSizes() {
  const { pen, width, height } = surface(byId("sizes"));
  const totals = new Map();
  for (const part of figures.classes) {
    for (const { from, count: n } of part.sizes) totals.set(from, (totals.get(from) || 0) + n);
  }
  const froms = [...totals.keys()].sort((a, b) => a - b);
  const most = Math.max(1, ...totals.values()), room = height - 46;
  const wide = froms.length ? Math.min(60, (width - 70) / froms.length) : 0;
  pen.textAlign = "right";
  pen.fillStyle = colour("dim");
  pen.fillText(count(most), 56, 18);
  pen.fillText("0", 56, height - 30);
  froms.forEach((from, index) => {
    let base = height - 34;
    for (const part of figures.classes) {
      const size = part.sizes.find((size) => size.from === from);
      if (!size) continue;
      const high = size.count / most * room;
      pen.fillStyle = colour("c-" + part.class);
      pen.fillRect(62 + index * wide, base - high, wide - 2, high);
      base -= high;
    }
    pen.save();
    pen.translate(62 + index * wide + wide / 2, height - 28);
    pen.rotate(-0.5);
    pen.fillStyle = colour("dim");
    pen.fillText(from === 0 ? "0" : bytes(from).replace(".00", "").replace(".0", ""), 0, 8);
    pen.restore();
  });
}

function draw() {
  drawSeek(); drawFlight(); drawCache(); drawSizes();
  if (data.files.length > 0) drawWaterfall();
  document.documentElement.dataset.view = JSON.stringify(view);
}

function bound() {
  const least = { t: Math.min(1, whole.t1), y: Math.min(512, whole.y1 - whole.y0) };
  for (const [a, b, smallest] of [["t0", "t1", least.t], ["y0", "y1", least.y]]) {
    const span = Math.min(whole[b] - whole[a], Math.max(smallest, view[b] - view[a]));
    view[a] = Math.min(Math.max(view[a], whole[a]), whole[b] - span);
    view[b] = view[a] + span;
  }
}

// Zooms around a place that is `part` of the way along the axis.
function zoom(a, b, factor, part) {
  const at = view[a] + (view[b] - view[a]) * part;
  view[a] = at - (at - view[a]) * factor;
  view[b] = at + (view[b] - at) * factor;
  bound();
  draw();
}

function move(t, y) {
  const dt = (view.t1 - view.t0) * t, dy = (view.y1 - view.y0) * y;
  view.t0 += dt; view.t1 += dt; view.y0 += dy; view.y1 += dy;
  bound();
  draw();
}

function reset() { Object.assign(view, whole); draw(); }

function describe({ class: kind, point: [start, took, offset, len, blob, failed] }) {
  const of = blob === 0 ? "" : " of blob " + blob;
  return (failed ? "failed " : "") + kind + " at " + time(start) + ", took " + time(took) + "\n" +
    count(len) + " bytes from " + count(offset) + of;
}

// The point below the pointer, or beside it.
function nearest(px, py) {
  const canvas = byId("seek"), width = canvas.getBoundingClientRect().width, height = Number(canvas.dataset.height);
  const x = scaleX(width), y = scaleY(height);
  let best = -1, least = 14;
  sorted.forEach(({ point: [start, took, offset, len] }, index) => {
    const dx = Math.max(x(start) - px, 0, px - x(start + took)), dy = Math.max(y(offset + len) - py, 0, py - y(offset));
    const distance = Math.hypot(dx, dy);
    if (distance < least) { least = distance; best = index; }
  });
  return best;
}

function hover(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const px = event.clientX - box.left, py = event.clientY - box.top;
  const t = view.t0 + (px - LEFT) / (box.width - LEFT - RIGHT) * (view.t1 - view.t0);
  const bin = Math.floor(t / data.width);
  let text = "";
  if (canvas.id === "seek") {
    const found = nearest(px, py);
    text = found < 0 ? "" : describe(sorted[found]);
  } else if (canvas.id === "flight" && bin >= 0 && bin < data.device.length) {
    text = time(t) + "\n" + bytes(data.device[bin]) + " of the image or device\n" + bytes(data.server[bin]) + " of servers";
  } else if (canvas.id === "cache" && bin >= 0 && bin < data.lookups.length) {
    text = time(t) + "\n" + OUTCOMES.map((name, kind) => count(data.lookups[bin][kind]) + " " + name).join(", ");
  } else if (canvas.id === "waterfall") {
    const file = data.files[Math.floor((py - TOP) / ROW)];
    if (file) text = named(file) + "\n" + count(file.reads) + " reads, " + count(file.writes) + " writes, " + bytes(file.bytes) +
      "\n" + time(file.micros) + " in all, " + time(file.slowest_micros) + " the slowest";
  }
  if (text) showTip(text, event.clientX, event.clientY); else hideTip();
}

function choose(step) {
  if (!sorted.length) return;
  chosen = chosen < 0 ? 0 : (chosen + step + sorted.length) % sorted.length;
  const [start, took, offset, len] = sorted[chosen].point;
  if (start < view.t0 || start + took > view.t1) { const span = view.t1 - view.t0; view.t0 = start - span / 2; view.t1 = view.t0 + span; }
  if (offset < view.y0 || offset + len > view.y1) { const span = view.y1 - view.y0; view.y0 = offset - span / 2; view.y1 = view.y0 + span; }
  bound();
  draw();
  byId("chosen").textContent = describe(sorted[chosen]).replace("\n", ": ");
}

const KEYS = {
  "+": () => zoom("t0", "t1", 0.5, 0.5), "=": () => zoom("t0", "t1", 0.5, 0.5), "-": () => zoom("t0", "t1", 2, 0.5),
  "]": () => zoom("y0", "y1", 0.5, 0.5), "[": () => zoom("y0", "y1", 2, 0.5),
  ArrowLeft: () => move(-0.2, 0), ArrowRight: () => move(0.2, 0), ArrowUp: () => move(0, 0.2), ArrowDown: () => move(0, -0.2),
  n: () => choose(1), p: () => choose(-1), 0: reset, Home: reset,
};

function listen(canvas) {
  let from = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = canvas.getBoundingClientRect(), factor = (event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8;
    if (event.shiftKey && canvas.id === "seek") {
      const part = (box.height - BOTTOM - (event.clientY - box.top)) / (box.height - TOP - BOTTOM);
      zoom("y0", "y1", factor, Math.min(1, Math.max(0, part)));
    } else {
      const part = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
      zoom("t0", "t1", factor, Math.min(1, Math.max(0, part)));
    }
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { from = event; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { from = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (from) {
      const box = canvas.getBoundingClientRect();
      const dy = canvas.id === "seek" ? (event.clientY - from.clientY) / (box.height - TOP - BOTTOM) : 0;
      move((from.clientX - event.clientX) / (box.width - LEFT - RIGHT), dy);
      from = event;
    }
    hover(canvas, event);
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey && KEYS[event.key]) { event.preventDefault(); KEYS[event.key](); }
  });
}

function legend() {
  for (const part of figures.classes) {
    if (part.count === 0) continue;
    const label = document.createElement("label"), box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => {
      if (box.checked) shown.add(part.class); else shown.delete(part.class);
      sorted = points();
      chosen = -1;
      draw();
    });
    label.append(box);
    swatch(label, part.class, part.class);
    byId("classes").append(label);
  }
  swatch(byId("classes"), "failed", "failed");
  swatch(byId("links"), "device", "image or device");
  swatch(byId("links"), "server", "servers");
  for (const name of OUTCOMES) swatch(byId("outcomes"), name, name);
}

// What is drawn one by one, added up: the same as the figures unless points were left out.
function tables() {
  const table = head(byId("figures"), ["request", "count", "bytes", "failed", "time", "drawn"]);
  for (const part of figures.classes) {
    const drawn = data.drawn.find((other) => other.class === part.class).points.length;
    row(table, part.class, [part.class, part.count, part.bytes, part.failed, time(part.micros), drawn]);
  }
  row(table, "flushes", ["flush", figures.flushes, "", "", "", ""]);
  for (const [kind, name] of OUTCOMES.entries()) {
    row(table, name, ["cache " + name, data.lookups.reduce((sum, bin) => sum + bin[kind], 0), "", "", "", ""]);
  }
  const slow = head(byId("slowest"), ["file", "reads", "writes", "bytes", "time", "slowest"]);
  for (const file of data.files) {
    row(slow, String(file.node), [named(file), file.reads, file.writes, file.bytes, millis(file.micros), millis(file.slowest_micros)]);
  }
  byId("files-part").hidden = byId("slowest-part").hidden = data.files.length === 0;
  const less = data.drawn.filter((part) => part.every > 1).map((part) => "1 of " + count(part.every) + " " + part.class);
  byId("thinned").textContent = less.length ? "The trace is long. Drawn are " + less.join(", ") + "; all figures count every request." : "";
  byId("left").textContent = figures.files_left_out ? "There were too many files to keep: times of quicker ones are not in the sums below." : "";
  byId("summary").textContent = count(figures.events) + " events in " + time(figures.micros) + ". Highest mean in flight: " +
    bytes(largest(data.device)) + " of the image or device, " + bytes(largest(data.server)) + " of servers.";
}

legend();
tables();
["seek", "flight", "cache", "waterfall"].forEach((id) => listen(byId(id)));
byId("reset").addEventListener("click", reset);
keepDrawn(draw);
