// What the user does: zoom, move, hover, pick, search, keys, theme; then the first drawing.

let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; drawMap(); drawOver(); });
}

function filterChanged() { refilter(); fillTable(); redraw(); }

function setView(next) {
  const whole = full(), v = { ...next };
  for (const [low, high, least] of [["x0", "x1", 0.5], ["y0", "y1", 1]]) {
    const room = whole[high] - whole[low], span = Math.min(Math.max(v[high] - v[low], Math.min(least, room)), room);
    v[low] = Math.min(Math.max(v[low], whole[low]), whole[high] - span);
    v[high] = v[low] + span;
  }
  state.view = v;
  redraw();
}

function zoom(x, y, fx, fy) {
  const v = state.view, t = timeAt(x), b = byteAt(y);
  setView({ x0: t - (t - v.x0) * fx, x1: t + (v.x1 - t) * fx, y0: b - (b - v.y0) * fy, y1: b + (v.y1 - b) * fy });
}

function closer(i) {
  const r = firstRect[i];
  if (r < 0) return;
  if (data.s[i] && !state.showStatic) toggleStatic();
  const t = (data.r1[r] - data.r0[r]) * 0.6 + 1, b = data.h[i] * 2 + 1;
  setView({ x0: data.r0[r] - t, x1: data.r1[r] + t, y0: baseOf(i) - b, y1: baseOf(i) + data.h[i] + b });
}

function pick(i, move) {
  state.picked = i;
  const r = firstRect[i], v = state.view;
  if (i >= 0 && move && r >= 0 && !(data.s[i] && !state.showStatic)) {
    const outside = data.r1[r] <= v.x0 || data.r0[r] >= v.x1 || baseOf(i) + data.h[i] <= v.y0 || baseOf(i) >= v.y1;
    if (outside) closer(i);
  }
  fillDetail();
  if (i >= 0 && !move) showRow(i);
  drawRows();
  redraw();
}

function toPeak() {
  if (data.peak === null) return;
  const wide = Math.max((data.end - data.start) / 12, 4), whole = full();
  setView({ x0: peakTime() - wide, x1: peakTime() + wide, y0: whole.y0, y1: whole.y1 });
  pick(-1);
}

function toggleStatic() {
  if (!data.static || !data.height) return;
  state.showStatic = !state.showStatic;
  $("static").setAttribute("aria-pressed", state.showStatic);
  layout();
  setView(full());
}

function hover(x, y, event) {
  const [r, more] = hit(x, y);
  const inside = x >= box.x && x <= box.x + box.w && y >= box.y && y <= box.curve + CURVE;
  state.hovered = r;
  state.hoverTime = inside ? timeAt(x) : null;
  const t = inside ? Math.floor(state.hoverTime) : null;
  $("where").textContent = inside ? `${data.unit} ${timeText(t)}: ${bytesText(liveAt(t))} live` : "";
  const onStrip = box.strip && y >= TOP && y < TOP + STRIP && x >= box.x && x < box.x + box.w;
  tip(r >= 0 ? rectLines(r, more) : onStrip ? ["static region", `${bytesText(data.static)}, for the whole run; click to show`] : null, event);
  drawOver();
}

function rectLines(r, more) {
  const i = data.ri[r], life = data.unit === "step"
    ? `steps ${timeText(data.r0[r])} to ${timeText(lastOf(r))}` : `time [${exact(data.r0[r])}, ${exact(data.r1[r])})`;
  const lines = [data.names[i], `${data.classes[data.k[i]]}, ${bytesText(data.n[i])} (${exact(data.n[i])} bytes) at ${exact(data.o[i])}`, life];
  if (data.members[i]) lines.push(`one alias class: ${data.members[i].length} tensors`);
  if (more) lines.push(`and ${exact(more)} more in this pixel`);
  return lines;
}

function tip(lines, event) {
  const box = $("tip");
  box.hidden = !lines;
  if (!lines) return;
  box.replaceChildren(element("b", null, isolated(lines[0])), ...lines.slice(1).map((text) => element("span", null, isolated(text))));
  const wide = box.offsetWidth, tall = box.offsetHeight;
  box.style.left = Math.max(Math.min(event.clientX + 14, innerWidth - wide - 8), 4) + "px";
  box.style.top = Math.max(event.clientY + 18 + tall > innerHeight ? event.clientY - tall - 10 : event.clientY + 18, 4) + "px";
}

let drag = null;
base.addEventListener("pointerdown", (event) => {
  if (event.button) return;
  drag = { x: event.offsetX, y: event.offsetY, view: state.view, moved: false };
  base.setPointerCapture(event.pointerId);
});
base.addEventListener("pointermove", (event) => {
  if (drag && (drag.moved || Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) > 3)) {
    drag.moved = true;
    base.classList.add("moving");
    const v = drag.view, dx = ((event.offsetX - drag.x) / box.w) * (v.x1 - v.x0), dy = ((event.offsetY - drag.y) / box.h) * (v.y1 - v.y0);
    tip(null);
    setView({ x0: v.x0 - dx, x1: v.x1 - dx, y0: v.y0 + dy, y1: v.y1 + dy });
  } else if (!drag) hover(event.offsetX, event.offsetY, event);
});
base.addEventListener("pointerup", (event) => {
  const was = drag;
  drag = null;
  base.classList.remove("moving");
  if (!was || was.moved) return;
  const [r] = hit(event.offsetX, event.offsetY);
  if (box.strip && event.offsetY >= TOP && event.offsetY < TOP + STRIP) toggleStatic();
  else pick(r >= 0 ? data.ri[r] : -1, false);
});
base.addEventListener("pointerleave", () => { state.hovered = -1; state.hoverTime = null; tip(null); $("where").textContent = ""; drawOver(); });
base.addEventListener("dblclick", (event) => { const [r] = hit(event.offsetX, event.offsetY); if (r >= 0) closer(data.ri[r]); });
base.addEventListener("wheel", (event) => {
  event.preventDefault();
  // Browsers turn a wheel with shift sideways.
  const turn = event.deltaY || event.deltaX, f = Math.exp(Math.max(Math.min(turn, 200), -200) * 0.002);
  const onCurve = event.offsetY >= box.curve;
  zoom(event.offsetX, event.offsetY, event.altKey ? 1 : f, event.shiftKey || onCurve ? 1 : f);
}, { passive: false });

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    $("search").value = state.words = "";
    pick(-1);
    return filterChanged();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const v = state.view, dx = (v.x1 - v.x0) / 8, dy = (v.y1 - v.y0) / 8, cx = box.x + box.w / 2, cy = box.y + box.h / 2;
  const move = (x, y) => setView({ x0: v.x0 + x, x1: v.x1 + x, y0: v.y0 + y, y1: v.y1 + y });
  const onMap = event.target !== $("rows");
  const keys = {
    "/": () => $("search").focus(), 0: () => setView(full()), p: toPeak, s: toggleStatic,
    "+": () => zoom(cx, cy, 0.7, 0.7), "=": () => zoom(cx, cy, 0.7, 0.7), "-": () => zoom(cx, cy, 1.4, 1.4),
    ...(onMap && { ArrowLeft: () => move(-dx, 0), ArrowRight: () => move(dx, 0), ArrowUp: () => move(0, dy), ArrowDown: () => move(0, -dy) }),
  };
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});

$("fit").addEventListener("click", () => setView(full()));
$("to-peak").addEventListener("click", toPeak);
$("static").addEventListener("click", toggleStatic);
$("colour").addEventListener("change", (event) => { state.colour = event.target.value; redraw(); });
$("search").addEventListener("input", (event) => { state.words = event.target.value; filterChanged(); });
$("peak-only").addEventListener("change", (event) => { state.atPeak = event.target.checked; filterChanged(); });
$("rows").addEventListener("scroll", drawRows);

const prefers = matchMedia("(prefers-color-scheme: dark)");
let theme = "auto";
function applyTheme() {
  document.documentElement.dataset.theme = theme === "auto" ? (prefers.matches ? "dark" : "light") : theme;
  $("theme").textContent = "Theme: " + theme;
  readPaint();
  fillClasses();
  fillDetail();
  drawRows();
  redraw();
}
$("theme").addEventListener("click", () => { theme = { auto: "light", light: "dark", dark: "auto" }[theme]; applyTheme(); });
prefers.addEventListener("change", applyTheme);
// Setting its size clears a canvas, so it is drawn at once and not with the next frame.
new ResizeObserver(() => {
  if (stage.clientWidth === box.width && stage.clientHeight === box.height) return;
  layout();
  drawMap();
  drawOver();
  drawRows();
}).observe(stage);

$("colour").value = state.colour;
$("static").hidden = !data.static || !data.height;
$("to-peak").disabled = data.peak === null;
layout();
state.view = full();
fillHeads();
applyTheme();
fillTable();
drawMap();
drawOver();
document.body.dataset.ready = String(rects);
