// Draws one run from the traits `snapshot` and `preview`; see RunState.snapshot and preview() for what they hold.

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#17becf", "#bcbd22", "#e377c2"];
const SILENT = 20; // seconds without news after which the kernel may be gone

function make(tag, parent, { text, className, ...style } = {}) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  Object.assign(node.style, style);
  if (parent) parent.append(node);
  return node;
}

function draw(tag, parent, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function count(value) {
  return Math.round(value).toLocaleString("en-US");
}

function short(value, units, step) {
  let at = 0;
  while (value >= step && at < units.length - 1) {
    value /= step;
    at += 1;
  }
  return `${value >= 100 || at === 0 ? Math.round(value) : value.toPrecision(3)} ${units[at]}`.trim();
}

const bytes = (value) => (value ? short(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024) : "–");
const rate = (value) => (value ? short(value, ["", "k", "M", "G"], 1000) : "–");

function clock(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  const two = (value) => String(value).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

function row(table, cells, tag = "td") {
  const line = make("tr", table);
  for (const cell of cells) {
    const own = make(tag, line);
    if (cell instanceof Node) own.append(cell);
    else own.textContent = cell;
    if (cell instanceof Node && cell.className === "track") own.className = "bar";
  }
  return line;
}

function bar(share, status) {
  const track = make("div", null, { className: "track" });
  make("div", track, { className: `fill ${status}`, width: `${Math.round(1000 * Math.min(1, share)) / 10}%` });
  return track;
}

function drawPasses(box, snapshot) {
  const table = make("table", box, { className: "passes" });
  const units = new Set(snapshot.passes.filter((one) => one.positions).map((one) => one.unit));
  const unit = units.size > 1 ? "units" : [...units, "patches"][0];
  row(table, ["pass", "", "samples", "leaves", `${unit}/s`, "time", "memory"], "th");
  for (const one of snapshot.passes) {
    if (one.status === "waiting") {
      row(table, [one.name, bar(0, ""), "", "", "", "waiting", ""]).className = "waiting";
      continue;
    }
    const share = one.n_samples ? one.samples / one.n_samples : Number(one.status === "finished");
    const memory = one.peak_bytes
      ? `${bytes(one.peak_bytes)} of ${bytes(one.projected_bytes)}`
      : `≤ ${bytes(one.projected_bytes)}`;
    row(table, [
      one.name,
      bar(share, one.status),
      one.n_samples ? `${count(one.samples)} / ${count(one.n_samples)}` : "",
      one.n_leaves ? `${count(one.leaves)} / ${count(one.n_leaves)}` : "",
      one.n_samples ? rate(one.rate) : "",
      one.left !== null && one.status === "running" ? `${clock(one.left)} left` : clock(one.seconds),
      memory,
    ]);
  }
}

function drawWorkers(box, snapshot) {
  if (!snapshot.workers.length || snapshot.status !== "running") return;
  const table = make("table", box, { className: "workers" });
  const gpu = snapshot.workers.some((one) => one.device_bytes);
  row(table, ["worker", "memory against projection", "", "leaves", gpu ? "GPU memory" : "", ""], "th");
  for (const one of snapshot.workers.slice(0, 16)) {
    const used = one.memory_bytes || 0;
    const silent = one.silent > 10 ? `silent for ${clock(one.silent)}` : "";
    const line = row(table, [
      one.name || "this process",
      bar(one.projected_bytes ? used / one.projected_bytes : 0, used > one.projected_bytes ? "failed" : ""),
      `${bytes(used)} of ${bytes(one.projected_bytes)}`,
      count(one.leaves),
      gpu ? bytes(one.device_bytes) : "",
      silent,
    ]);
    if (silent) line.className = "alarm";
  }
  if (snapshot.workers.length > 16)
    make("div", box, { text: `and ${snapshot.workers.length - 16} more`, className: "quiet" });
}

function drawSums(box, snapshot) {
  const current = snapshot.passes.find((one) => one.status === "running" && one.n_leaves);
  if (!current || !snapshot.sums.length) return;
  const covered = snapshot.sums.reduce((total, one) => total + one.leaves, 0);
  const many = `${snapshot.sums.length} partial sum${snapshot.sums.length === 1 ? "" : "s"}`;
  // between the end of a task and the start of the next there is nothing to say of tasks
  const tasks = snapshot.running ? `, ${snapshot.running} task${snapshot.running === 1 ? "" : "s"} under way` : "";
  make("div", box, { text: `${many} over ${covered} of ${current.n_leaves} leaves${tasks}`, className: "quiet" });
  const height = 5 * Math.min(12, snapshot.sums.length);
  const svg = draw("svg", box, {
    class: "sums",
    viewBox: `0 0 ${current.n_leaves} ${height}`,
    height: height + 2,
    preserveAspectRatio: "none",
  });
  snapshot.sums.slice(0, 12).forEach((one, at) => {
    for (const [start, stop] of one.covers)
      draw("rect", svg, { x: start, width: stop - start, y: 5 * at, height: 4, fill: COLOURS[at % COLOURS.length] });
  });
}

function drawSpectrum(box, values, title) {
  const [width, height, left] = [270, 120, 44];
  const own = make("div", box);
  make("div", own, { text: title, className: "quiet" });
  const svg = draw("svg", own, { width: width + left + 8, height: height + 18 });
  const [low, high] = [Math.min(0, ...values), Math.max(...values)];
  const x = (at) => left + (values.length > 1 ? (at / (values.length - 1)) * width : 0);
  const y = (value) => 6 + (1 - (value - low) / (high - low || 1)) * (height - 8);
  draw("line", svg, { x1: left, x2: left, y1: 4, y2: height, stroke: "#bbb" });
  draw("line", svg, { x1: left, x2: left + width, y1: height, y2: height, stroke: "#bbb" });
  draw("text", svg, { x: left - 5, y: y(high) + 4, "text-anchor": "end" }, high.toPrecision(3));
  draw("text", svg, { x: left - 5, y: y(low) + 1, "text-anchor": "end" }, low.toPrecision(2));
  draw("text", svg, { x: left + width, y: height + 13, "text-anchor": "end" }, `component ${values.length}`);
  draw("text", svg, { x: left, y: height + 13 }, "1");
  const points = values.map((value, at) => `${x(at)},${y(value)}`).join(" ");
  draw("polyline", svg, { points, fill: "none", stroke: "#1f77b4", "stroke-width": 1.8 });
}

function picture(pictures, at, size) {
  const [, height, width, channels] = pictures.shape;
  const canvas = make("canvas", null, { width: `${size}px`, height: `${size}px` });
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  const from = at * height * width * channels;
  for (let pixel = 0; pixel < height * width; pixel++) {
    for (let channel = 0; channel < 3; channel++) {
      const offset = channels === 3 ? channel : 0;
      image.data[4 * pixel + channel] = pictures.raw[from + pixel * channels + offset];
    }
    image.data[4 * pixel + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function decoded(pictures) {
  const text = atob(pictures.pixels);
  return { ...pictures, raw: Uint8Array.from(text, (letter) => letter.charCodeAt(0)) };
}

function drawPictures(box, preview) {
  if (preview.neighbours && preview.neighbours.atoms.length) {
    const own = make("div", box);
    make("div", own, { text: "atoms (framed), and those nearest in the embedding", className: "quiet" });
    const pictures = decoded(preview.neighbours);
    const columns = preview.neighbours.atoms[0].length;
    const grid = make("div", own, { className: "near", gridTemplateColumns: `repeat(${columns}, max-content)` });
    for (let at = 0; at < pictures.shape[0]; at++) {
      const canvas = picture(pictures, at, 24);
      if (at % columns === 0) canvas.className = "first";
      grid.append(canvas);
    }
  } else if (preview.patches && preview.patches.shape[0]) {
    const own = make("div", box);
    make("div", own, { text: "atoms so far", className: "quiet" });
    const pictures = decoded(preview.patches);
    const grid = make("div", own, { className: "near", gridTemplateColumns: "repeat(14, max-content)" });
    for (let at = 0; at < pictures.shape[0]; at++) grid.append(picture(pictures, at, 24));
  }
}

function drawPreview(box, preview) {
  if (!preview.pass) return;
  const total = preview.of_samples ? ` of ${count(preview.of_samples)}` : "";
  make("h4", box, { text: `Preview of ${preview.pass} after ${count(preview.n_samples)}${total} samples` });
  const facts = [`${count(preview.leaves)} of ${count(preview.n_leaves)} leaves`, `${count(preview.n_positions)} patches`];
  if (preview.atoms !== undefined)
    facts.push(`${count(preview.atoms_in_use)} of ${count(preview.atoms)} atoms in use`);
  make("div", box, { text: facts.join(", "), className: "quiet facts" });
  const line = make("div", box, { className: "preview" });
  if (preview.spectrum && preview.spectrum.length) {
    const part = preview.of_atoms < preview.atoms ? ` of the ${count(preview.of_atoms)} most active atoms` : "";
    drawSpectrum(line, preview.spectrum, `spectrum${part}`);
  }
  drawPictures(line, preview);
}

function render({ model, el }) {
  const root = make("div", el, { className: "smtdist-run" });
  const head = make("header", root);
  const body = make("div", root);
  const preview = make("div", root);
  let heard = Date.now();
  let asked = false;

  function drawHead() {
    const snapshot = model.get("snapshot");
    head.replaceChildren();
    make("strong", head, { text: "smtdist" });
    make("span", head, { text: snapshot.status, className: `pill ${snapshot.status}` });
    make("span", head, { text: snapshot.seconds ? clock(snapshot.seconds) : "", className: "quiet" });
    const silent = snapshot.status === "running" ? (Date.now() - heard) / 1000 : 0;
    if (snapshot.text) make("span", head, { text: snapshot.text, className: "alarm" });
    if (silent > SILENT) {
      const again = model.get("where") ? `: smtdist.watch("${model.get("where")}")` : "";
      const text = `no news from the kernel for ${clock(silent)}; if it was restarted, attach again${again}`;
      make("span", head, { text, className: "alarm" });
    } else if (snapshot.status === "running" && snapshot.silent > 60) {
      make("span", head, { text: `the run said nothing for ${clock(snapshot.silent)}`, className: "alarm" });
    }
    make("span", head, { className: "grow" });
    if (model.get("can_cancel") && ["running", "waiting"].includes(snapshot.status)) {
      const button = make("button", head, { text: asked ? "stopping…" : "Cancel" });
      button.disabled = asked;
      button.onclick = () => {
        asked = true;
        model.send({ type: "cancel" });
        drawHead();
      };
    }
  }

  function drawBody() {
    heard = Date.now();
    const snapshot = model.get("snapshot");
    drawHead();
    body.replaceChildren();
    if (snapshot.passes.length) drawPasses(body, snapshot);
    drawWorkers(body, snapshot);
    drawSums(body, snapshot);
    for (const one of snapshot.losses.slice(-3)) make("div", body, { text: `lost: ${one.text}`, className: "alarm" });
    for (const note of snapshot.notes.slice(-2)) make("div", body, { text: note, className: "quiet" });
  }

  function drawLook() {
    preview.replaceChildren();
    drawPreview(preview, model.get("preview"));
  }

  model.on("change:snapshot", drawBody);
  model.on("change:preview", drawLook);
  drawBody();
  drawLook();
  const timer = setInterval(drawHead, 5000);
  return () => {
    clearInterval(timer);
    model.off("change:snapshot", drawBody);
    model.off("change:preview", drawLook);
  };
}

export default { render };
