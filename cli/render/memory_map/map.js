// The map: rectangles rasterised into a pixel buffer, with a second buffer that says which rectangle owns a pixel.

const base = $("base"), over = $("over"), stage = $("stage");
const LEFT = 78, RIGHT = 26, TOP = 20, STRIP = 14, CURVE = 96, GAP = 10, AXIS = 22;
const box = { ratio: 1, width: 0, height: 0, x: LEFT, y: TOP, w: 1, h: 1, strip: 0, curve: 0 };
let owner = new Int32Array(0), crowd = new Uint16Array(0), pixels = null;

function layout() {
  box.ratio = window.devicePixelRatio || 1;
  box.width = stage.clientWidth;
  box.height = stage.clientHeight;
  for (const canvas of [base, over]) {
    canvas.width = Math.round(box.width * box.ratio);
    canvas.height = Math.round(box.height * box.ratio);
  }
  box.strip = data.static && !state.showStatic ? STRIP + 10 : 0;
  box.y = TOP + box.strip;
  box.w = Math.max(box.width - LEFT - RIGHT, 10);
  box.h = Math.max(box.height - box.y - CURVE - GAP - AXIS, 10);
  box.curve = box.y + box.h + GAP;
}

const toX = (t) => box.x + ((t - state.view.x0) / (state.view.x1 - state.view.x0)) * box.w;
const toY = (b) => box.y + box.h - ((b - state.view.y0) / (state.view.y1 - state.view.y0)) * box.h;
const timeAt = (x) => state.view.x0 + ((x - box.x) / box.w) * (state.view.x1 - state.view.x0);
const byteAt = (y) => state.view.y0 + ((box.y + box.h - y) / box.h) * (state.view.y1 - state.view.y0);

function drawMap() {
  const pen = base.getContext("2d");
  pen.setTransform(box.ratio, 0, 0, box.ratio, 0, 0);
  pen.clearRect(0, 0, box.width, box.height);
  pen.font = "11px system-ui, sans-serif";
  const labels = raster(pen);
  drawAxes(pen);
  drawLabels(pen, labels);
  if (box.strip) drawStrip(pen);
  drawCurve(pen);
  drawPeak(pen);
  if (!rects || (!data.height && !state.showStatic)) note(pen, data.static ? "no dynamic memory" : "no memory at all");
}

// Fill the pixel buffer; returns the rectangles large enough for a name.
function raster(pen) {
  const W = Math.max(Math.round(box.w * box.ratio), 1), H = Math.max(Math.round(box.h * box.ratio), 1);
  if (!pixels || pixels.width !== W || pixels.height !== H) {
    pixels = pen.createImageData(W, H);
    owner = new Int32Array(W * H);
    crowd = new Uint16Array(W * H);
  }
  const colours = new Uint32Array(pixels.data.buffer), v = state.view;
  const pack = (c, alpha) => ((alpha << 24) | (c[2] << 16) | (c[1] << 8) | c[0]) >>> 0;
  colours.fill(pack(rgb(paint.plot), 255));
  owner.fill(0);
  crowd.fill(0);
  const sx = W / (v.x1 - v.x0), sy = H / (v.y1 - v.y0), plot = rgb(paint.plot), labels = [];
  for (let r = 0; r < rects; r++) {
    const i = data.ri[r], low = baseOf(i), high = low + data.h[i];
    if (data.s[i] && !state.showStatic) continue;
    if (data.r1[r] <= v.x0 || data.r0[r] >= v.x1 || high <= v.y0 || low >= v.y1) continue;
    let a = Math.round((data.r0[r] - v.x0) * sx), b = Math.round((data.r1[r] - v.x0) * sx);
    let t = Math.round(H - (high - v.y0) * sy), u = Math.round(H - (low - v.y0) * sy);
    const wide = b - a, tall = u - t;
    if (wide < 1) b = a + 1;
    if (tall < 1) t = u - 1;
    a = Math.max(a, 0); b = Math.min(b, W); t = Math.max(t, 0); u = Math.min(u, H);
    if (a >= b || t >= u) continue;
    const lit = !kept || kept[i];
    let c = colourOf(r);
    if (!lit) c = c.map((value, k) => value * 0.16 + plot[k] * 0.84);
    const fill = pack(c, 255), edge = pack(c.map((value) => value * (lit ? 0.72 : 0.93)), 255);
    const bordered = wide > 4 && tall > 4;
    for (let y = t; y < u; y++) {
      const row = y * W;
      if (wide < 1 || tall < 1) {
        for (let x = a; x < b; x++) {
          // Several share this pixel: keep what the search has lit, and count the others.
          if (owner[row + x] && crowd[row + x] < 65535) crowd[row + x]++;
          if (!owner[row + x] || lit) { colours[row + x] = fill; owner[row + x] = r + 1; }
        }
      } else {
        colours.fill(bordered && y === u - 1 ? edge : fill, row + a, row + b);
        owner.fill(r + 1, row + a, row + b);
        if (bordered) colours[row + b - 1] = edge;
      }
    }
    if (lit && wide > 22 * box.ratio && tall > 14 * box.ratio) labels.push([r, a, b, t, u, c]);
  }
  pen.putImageData(pixels, Math.round(box.x * box.ratio), Math.round(box.y * box.ratio));
  return labels;
}

function drawLabels(pen, labels) {
  labels.sort((p, q) => (q[2] - q[1]) * (q[4] - q[3]) - (p[2] - p[1]) * (p[4] - p[3]));
  pen.textBaseline = "middle";
  pen.textAlign = "center";
  for (const [r, a, b, t, u, c] of labels.slice(0, 400)) {
    const room = (b - a) / box.ratio - 6, text = fitted(pen, data.names[data.ri[r]], room);
    pen.fillStyle = c[0] * 0.3 + c[1] * 0.59 + c[2] * 0.11 > 155 ? "#101418" : "#ffffff";
    if (text) pen.fillText(text, box.x + (a + b) / 2 / box.ratio, box.y + (t + u) / 2 / box.ratio);
  }
}

function fitted(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  if (room < 40) return "";
  const keep = Math.floor((text.length * room) / pen.measureText(text).width) - 1;
  return keep > 2 ? text.slice(0, keep) + "…" : "";
}

function ticks(low, high, wanted, binary) {
  let step = 1;
  const rough = (high - low) / wanted;
  while (step < rough) step *= binary ? 2 : String(step)[0] === "2" ? 2.5 : 2;
  const out = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) out.push(k * step);
  return out;
}

function drawAxes(pen) {
  pen.strokeStyle = paint.grid;
  pen.fillStyle = paint.soft;
  pen.lineWidth = 1;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  const v = state.view;
  for (const b of ticks(v.y0, v.y1, Math.max(box.h / 55, 2), true)) {
    const y = toY(b);
    line(pen, box.x - 4, y, box.x, y);
    const part = state.showStatic && b > data.height ? "+" + bytesText(b - data.height) : bytesText(b);
    pen.fillText(part, box.x - 7, y);
  }
  if (state.showStatic && data.height) {
    pen.strokeStyle = paint.ink;
    line(pen, box.x, toY(data.height), box.x + box.w, toY(data.height));
  }
  pen.strokeStyle = paint.grid;
  pen.textAlign = "center";
  const low = box.curve + CURVE;
  for (const t of ticks(v.x0, v.x1, Math.max(box.w / 95, 2), false)) {
    line(pen, toX(t), low, toX(t), low + 4);
    pen.fillText(exact(t), toX(t), low + 13);
  }
  pen.textAlign = "right";
  pen.fillText(data.unit, box.x - 7, low + 13);
}

function line(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}

// The static region, collapsed: a strip with the share of each class.
function drawStrip(pen) {
  const sums = data.classes.map(() => 0);
  for (let i = 0; i < count; i++) if (data.s[i]) sums[data.k[i]] += data.h[i];
  let x = box.x;
  sums.forEach((sum, k) => {
    const wide = (sum / data.static) * box.w;
    pen.fillStyle = css(paint.classes[k]);
    pen.fillRect(x, TOP, wide, STRIP);
    x += wide;
  });
  pen.fillStyle = paint.soft;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  pen.fillText("static", box.x - 7, TOP + STRIP / 2);
}

function drawPeak(pen) {
  const x = data.peak === null ? -1 : toX(peakTime());
  if (x < box.x || x > box.x + box.w) return;
  pen.strokeStyle = pen.fillStyle = paint.peak;
  pen.setLineDash([5, 3]);
  pen.lineWidth = 1.5;
  line(pen, x, box.y, x, box.curve + CURVE);
  pen.setLineDash([]);
  pen.textBaseline = "middle";
  const right = x > box.x + box.w * 0.6;
  pen.textAlign = right ? "right" : "left";
  const text = `peak: ${bytesText(data.peakLive)} live at ${data.unit} ${timeText(data.peak)}`;
  pen.fillText(fitted(pen, text, right ? x - box.x : box.x + box.w - x), x + (right ? -4 : 4), 9);
}

function note(pen, text) {
  pen.fillStyle = paint.soft;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.font = "14px system-ui, sans-serif";
  pen.fillText(text, box.x + box.w / 2, box.y + box.h / 2);
}

// The rectangle at a point of the stage, -1 for none, and how many more share that pixel.
function hit(x, y) {
  if (!pixels || x < box.x || x >= box.x + box.w || y < box.y || y >= box.y + box.h) return [-1, 0];
  const px = Math.min(Math.floor((x - box.x) * box.ratio), pixels.width - 1);
  const py = Math.min(Math.floor((y - box.y) * box.ratio), pixels.height - 1);
  const at = py * pixels.width + px;
  return [owner[at] - 1, crowd[at]];
}
