const figures = data.figures;
const KINDS = figures.kinds.map((part) => part.kind);
const end = figures.image_bytes;
const view = { from: 0, to: Math.max(1, end) };
const BAR = 70;

// Nodes of the tree: arrays of parent, name, is directory, length, stored, holes, shared, files, rest.
const PARENT = 0, NAME = 1, DIR = 2, SIZE = 3, STORED = 4, HOLES = 5, FILES = 7, REST = 8;
const children = data.nodes.map(() => []);
data.nodes.forEach((node, index) => { if (index > 0) children[node[PARENT]].push(index); });
let area = SIZE, place = 0, tiles = [], chosen = -1;

function drawLayout() {
  const { pen, width, height } = surface(byId("layout"));
  const room = width - 16, colours = KINDS.map((kind) => colour("c-" + kind)), shared = colour("c-shared");
  const columns = Math.min(room, data.bins[0].length), span = view.to - view.from;
  for (let column = 0; column < columns; column += 1) {
    const first = Math.floor((view.from + span * column / columns) / data.width);
    const last = Math.max(first, Math.ceil((view.from + span * (column + 1) / columns) / data.width) - 1);
    const sums = KINDS.map(() => 0);
    let common = 0, all = 0;
    for (let bin = first; bin <= last && bin < data.shared.length; bin += 1) {
      KINDS.forEach((_, kind) => { sums[kind] += data.bins[kind][bin]; all += data.bins[kind][bin]; });
      common += data.shared[bin];
    }
    if (all === 0) continue;
    const x = 8 + column * room / columns, wide = room / columns + 0.5;
    let y = 6;
    sums.forEach((sum, kind) => {
      pen.fillStyle = colours[kind];
      pen.fillRect(x, y, wide, sum / all * BAR);
      y += sum / all * BAR;
    });
    if (common > 0) {
      pen.fillStyle = shared;
      pen.fillRect(x, BAR + 9, wide, 12 * Math.max(0.2, common / all));
    }
  }
  pen.fillStyle = colour("dim");
  const marks = steps(view.from, view.to, 10, true), at = (mark) => 8 + (mark - view.from) / span * room;
  for (const mark of marks) pen.fillRect(at(mark), height - 22, 1, 5);
  labels(pen, marks, at, bytes, 4, width - 4, height - 6);
  document.documentElement.dataset.view = JSON.stringify(view);
}

function bound() {
  const span = Math.min(Math.max(1, end), Math.max(Math.min(data.width, end), view.to - view.from));
  view.from = Math.min(Math.max(0, view.from), Math.max(1, end) - span);
  view.to = view.from + span;
}

function zoom(factor, part) {
  const at = view.from + (view.to - view.from) * part;
  view.from = at - (at - view.from) * factor;
  view.to = at + (view.to - at) * factor;
  bound();
  drawLayout();
}

function move(part) {
  const by = (view.to - view.from) * part;
  view.from += by; view.to += by;
  bound();
  drawLayout();
}

function layoutText(x, width) {
  const bin = Math.floor((view.from + (view.to - view.from) * (x - 8) / (width - 16)) / data.width);
  if (!(bin >= 0 && bin < data.shared.length)) return "";
  const lines = KINDS.map((kind, index) => [kind, data.bins[index][bin]]).filter(([, n]) => n > 0)
    .map(([kind, n]) => kind + ": " + bytes(n));
  if (data.shared[bin] > 0) lines.push("shared: " + bytes(data.shared[bin]));
  return "From " + count(bin * data.width) + " on, " + bytes(data.width) + "\n" + lines.join("\n");
}

// Divides a rectangle into ones of the areas of `weights`, the largest first, as square as possible.
function divide(x, y, width, height, weights) {
  const total = weights.reduce((sum, n) => sum + n, 0), out = [];
  if (!(total > 0)) return weights.map(() => [0, 0, 0, 0]);
  const scale = width * height / total;
  let next = 0;
  while (next < weights.length) {
    const side = Math.min(width, height);
    let sum = 0, taken = 0, worst = Infinity;
    for (let n = next; n < weights.length; n += 1) {
      const more = sum + weights[n] * scale, most = weights[next] * scale, least = weights[n] * scale;
      const now = least > 0 ? Math.max(side * side * most / (more * more), more * more / (side * side * least)) : Infinity;
      if (now > worst) break;
      sum = more; taken += 1; worst = now;
    }
    const deep = side > 0 ? sum / side : 0;
    let at = 0;
    for (const weight of weights.slice(next, next + taken)) {
      const long = deep > 0 ? weight * scale / deep : 0;
      out.push(width >= height ? [x, y + at, deep, long] : [x + at, y, long, deep]);
      at += long;
    }
    if (width >= height) { x += deep; width -= deep; } else { y += deep; height -= deep; }
    next += taken;
  }
  return out;
}

const dark = () => window.matchMedia("(prefers-color-scheme: dark)").matches;

function ratioColour(stored, length) {
  if (!(length > 0)) return colour("c-other");
  const ratio = Math.min(1, stored / length);
  return "hsl(" + (160 - 150 * ratio).toFixed(0) + (dark() ? ",45%,32%)" : ",55%,70%)");
}

// Lays out what is in a directory: tiles of index, or directory for the rest, and rectangle.
function lay(dir, x, y, width, height, level) {
  const inside = children[dir].map((index) => ({ index, weight: data.nodes[index][area] }));
  const rest = data.nodes[dir][REST][area === SIZE ? 0 : 1];
  if (rest > 0) inside.push({ index: -1, weight: rest });
  inside.sort((a, b) => b.weight - a.weight);
  const boxes = divide(x, y, width, height, inside.map((part) => part.weight));
  inside.forEach(({ index }, n) => {
    const box = boxes[n];
    if (box[2] * box[3] < 3) return;
    tiles.push({ index, dir, box, level });
    const isDir = index >= 0 && data.nodes[index][DIR] === 1;
    if (isDir && box[2] > 36 && box[3] > 34 && level < 6) lay(index, box[0] + 2, box[1] + 16, box[2] - 4, box[3] - 18, level + 1);
  });
}

function drawTree() {
  const canvas = byId("tree");
  canvas.hidden = false;
  const { pen, width, height } = surface(canvas);
  tiles = [];
  lay(place, 1, 1, width - 2, height - 2, 0);
  canvas.hidden = tiles.length === 0;
  byId("empty").hidden = tiles.length > 0;
  const back = colour("back"), fore = colour("fore");
  tiles.forEach(({ index, dir, box: [x, y, wide, high] }) => {
    const node = data.nodes[index], rest = data.nodes[dir][REST];
    pen.fillStyle = index < 0 ? ratioColour(rest[1], rest[0]) : ratioColour(node[STORED], node[SIZE] - node[HOLES]);
    pen.fillRect(x, y, wide, high);
    pen.strokeStyle = back;
    pen.lineWidth = 1;
    pen.strokeRect(x, y, wide, high);
    if (wide < 30 || high < 14) return;
    pen.save();
    pen.beginPath();
    pen.rect(x, y, wide - 3, high);
    pen.clip();
    pen.fillStyle = fore;
    pen.textAlign = "left";
    pen.fillText(index < 0 ? count(rest[2]) + " smaller" : node[NAME] + (node[DIR] ? "/" : ""), x + 4, y + 12);
    pen.restore();
  });
  const tile = tiles[chosen];
  if (tile) {
    pen.strokeStyle = colour("focus");
    pen.lineWidth = 2.5;
    pen.strokeRect(...tile.box);
  }
  const crumbs = byId("crumbs");
  crumbs.textContent = "";
  for (let at = place, done = false; !done; at = data.nodes[at][PARENT]) {
    const button = document.createElement("button"), to = at;
    button.type = "button";
    button.textContent = at === 0 ? "/" : data.nodes[at][NAME];
    button.addEventListener("click", () => enter(to));
    crumbs.prepend(button, " ");
    done = at === 0;
  }
  byId("tree").dataset.tiles = String(tiles.length);
  document.documentElement.dataset.place = String(place);
}

function path(index) {
  const names = [];
  for (let at = index; at > 0; at = data.nodes[at][PARENT]) names.unshift(data.nodes[at][NAME]);
  return "/" + names.join("/");
}

function tileText({ index, dir }) {
  if (index < 0) {
    const [size, stored, files] = data.nodes[dir][REST];
    return path(dir) + "\n" + count(files) + " smaller files: " + bytes(size) + ", " + bytes(stored) + " stored";
  }
  const node = data.nodes[index], length = node[SIZE] - node[HOLES];
  const ratio = length > 0 ? " (" + percent(node[STORED], length) + ")" : "";
  return path(index) + "\n" + bytes(node[SIZE]) + ", " + bytes(node[STORED]) + " stored" + ratio +
    (node[HOLES] > 0 ? "\n" + bytes(node[HOLES]) + " of holes" : "") + (node[DIR] ? "\n" + count(node[FILES]) + " files" : "");
}

function enter(index) {
  place = index;
  chosen = -1;
  drawTree();
}

function choose(index) {
  chosen = index;
  drawTree();
  byId("chosen").textContent = tiles[index] ? tileText(tiles[index]).replaceAll("\n", ": ") : "\u00a0";
}

// The tile below a place: the innermost one.
function tileAt(x, y) {
  let found = -1;
  tiles.forEach(({ box }, index) => {
    if (x >= box[0] && x < box[0] + box[2] && y >= box[1] && y < box[1] + box[3]) found = index;
  });
  return found;
}

// The directory below a tile that can be gone into from here.
function target(tile) {
  if (!tile || tile.index < 0) return tile ? tile.dir : place;
  return data.nodes[tile.index][DIR] ? tile.index : data.nodes[tile.index][PARENT];
}

// Chooses the nearest tile of the outermost level in a direction.
function step(dx, dy) {
  const outer = tiles.map((tile, index) => ({ tile, index })).filter(({ tile }) => tile.level === 0);
  const now = tiles[chosen];
  if (!now) { if (outer.length) choose(outer[0].index); return; }
  const middle = ({ box: [x, y, wide, high] }) => [x + wide / 2, y + high / 2], [x, y] = middle(now);
  let best = -1, least = Infinity;
  for (const { tile, index } of outer) {
    const [cx, cy] = middle(tile), along = (cx - x) * dx + (cy - y) * dy;
    const distance = Math.hypot(cx - x, cy - y) + Math.abs((cx - x) * dy) + Math.abs((cy - y) * dx);
    if (along > 1 && distance < least) { least = distance; best = index; }
  }
  if (best >= 0) choose(best);
}

function listenToLayout(canvas) {
  let from = null;
  const part = (event, box) => Math.min(1, Math.max(0, (event.clientX - box.left - 8) / (box.width - 16)));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, part(event, canvas.getBoundingClientRect()));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { from = event; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { from = null; });
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    if (from) { move((from.clientX - event.clientX) / (box.width - 16)); from = event; }
    const text = layoutText(event.clientX - box.left, box.width);
    if (text) showTip(text, event.clientX, event.clientY); else hideTip();
  });
  canvas.addEventListener("pointerleave", hideTip);
  const keys = {
    "+": () => zoom(0.5, 0.5), "=": () => zoom(0.5, 0.5), "-": () => zoom(2, 0.5), ArrowLeft: () => move(-0.2),
    ArrowRight: () => move(0.2), 0: () => { view.from = 0; view.to = Math.max(1, end); drawLayout(); },
  };
  canvas.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey && keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
}

function listenToTree(canvas) {
  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    return tiles[tileAt(event.clientX - box.left, event.clientY - box.top)];
  };
  canvas.addEventListener("pointermove", (event) => {
    const tile = under(event);
    if (tile) showTip(tileText(tile), event.clientX, event.clientY); else hideTip();
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("click", (event) => { hideTip(); enter(target(under(event))); });
  const keys = {
    ArrowLeft: () => step(-1, 0), ArrowRight: () => step(1, 0), ArrowUp: () => step(0, -1), ArrowDown: () => step(0, 1),
    Enter: () => enter(target(tiles[chosen])), Backspace: () => enter(data.nodes[place][PARENT]),
    Escape: () => enter(data.nodes[place][PARENT]), 0: () => enter(0),
  };
  canvas.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey && keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  for (const radio of document.querySelectorAll("input[name=area]")) {
    radio.addEventListener("change", () => { area = radio.value === "size" ? SIZE : STORED; chosen = -1; drawTree(); });
  }
}

const share = (n) => percent(n, end);

function tables() {
  // The sums of what is drawn.
  const table = head(byId("figures"), ["part of the image", "bytes", "share"]);
  KINDS.forEach((kind, index) => {
    const sum = data.bins[index].reduce((all, n) => all + n, 0);
    swatch(byId("kinds"), kind, kind);
    row(table, kind, [kind, sum, share(sum)]);
    if (kind !== "metadata") return;
    for (const part of figures.metadata) row(table, "metadata " + part.name, ["\u2003" + part.name, part.bytes, share(part.bytes)]);
  });
  swatch(byId("kinds"), "shared", "shared");
  const shared = data.shared.reduce((all, n) => all + n, 0);
  row(table, "shared", ["shared by several files", shared, share(shared)]);
  const total = figures.total, sums = head(byId("sums"), ["all files", ""]);
  for (const [key, text] of [["files", "files"], ["others", "links, devices, further names"], ["bytes", "bytes"],
    ["in_image_bytes", "bytes in the image"], ["stored_bytes", "bytes stored, shared ones each time"], ["hole_bytes", "bytes of holes"], ["shared_bytes", "bytes saved by sharing"],
    ["inline_bytes", "bytes among metadata"], ["outside_bytes", "bytes outside the image"], ["runs", "pieces"],
    ["fragmented_files", "files of several pieces"]]) row(sums, key, [text, total[key]]);
  const dirs = head(byId("directories"), ["directory", "files", "bytes", "stored", "of them", "holes", "saved by sharing", "pieces"]);
  const elsewhere = figures.elsewhere.files > 0 ? [{ path: "elsewhere", ...figures.elsewhere }] : [];
  for (const dir of [...figures.directories, ...elsewhere]) {
    const length = dir.bytes - dir.hole_bytes;
    row(dirs, dir.path, [dir.path, dir.files, dir.bytes, dir.stored_bytes,
      percent(dir.stored_bytes, length), dir.hole_bytes, dir.shared_bytes, dir.runs]);
  }
  byId("directories-part").hidden = total.files === 0;
  if (figures.most_fragmented.length) {
    byId("pieces-part").hidden = false;
    const pieces = head(byId("pieces"), ["file", "pieces", "bytes"]);
    for (const file of figures.most_fragmented) row(pieces, file.path, [file.path, file.runs, file.bytes]);
  }
  byId("summary").textContent = figures.format + ", " + bytes(end) + ": " + count(total.files) + " files of " + bytes(total.bytes) +
    ", " + bytes(total.in_image_bytes) + " in the image." + (figures.free ? " Free space in " +
    (figures.free.runs === 1 ? "1 piece" : count(figures.free.runs) + " pieces") +
    ", the longest of " + bytes(figures.free.longest_bytes) + "." : "") +
    (figures.exact ? "" : " The image has too many parts to keep apart: sums are close, not exact.");
  for (const ratio of [0, 0.25, 0.5, 0.75, 1]) {
    const item = document.createElement("span"), box = document.createElement("i");
    box.className = "swatch";
    box.dataset.ratio = String(ratio);
    item.append(box, (ratio * 100) + " %");
    byId("ratios").append(item);
  }
}

function drawFree() {
  if (!figures.free) return;
  byId("free-part").hidden = false;
  const { pen, width, height } = surface(byId("free")), lengths = figures.free.lengths;
  const most = lengths.reduce((all, part) => Math.max(all, part.count), 1), wide = Math.min(60, (width - 60) / Math.max(1, lengths.length));
  pen.textAlign = "right";
  lengths.forEach(({ from, count: n }, index) => {
    const high = n / most * (height - 56);
    pen.fillStyle = colour("c-data");
    pen.fillRect(50 + index * wide, height - 34 - high, wide - 2, high);
    pen.fillStyle = colour("dim");
    pen.fillText(count(n), 50 + index * wide + wide - 6, height - 38 - high);
    pen.save();
    pen.translate(50 + index * wide + wide / 2, height - 28);
    pen.rotate(-0.5);
    pen.fillText(bytes(from).replace(".00", "").replace(".0", ""), 0, 8);
    pen.restore();
  });
}

tables();
listenToLayout(byId("layout"));
listenToTree(byId("tree"));
keepDrawn(() => {
  for (const box of document.querySelectorAll("[data-ratio]")) box.style.background = ratioColour(Number(box.dataset.ratio), 1);
  drawLayout(); drawTree(); drawFree();
});
