// The curve of live bytes with the lower bound, and what moves over both drawings: hover and pick.

function drawCurve(pen) {
  const low = box.curve + CURVE, most = Math.max(data.height, data.peakLive, data.bound || 0, 1);
  const y = (b) => low - (b / most) * (CURVE - 6);
  pen.fillStyle = paint.plot;
  pen.fillRect(box.x, box.curve, box.w, CURVE);
  // The highest value of each pixel column; a column without a change keeps the value before it.
  const columns = Math.max(Math.ceil(box.w), 1), tops = new Float64Array(columns);
  const width = (state.view.x1 - state.view.x0) / columns;
  let p = Math.max(pointAt(state.view.x0), 0);
  for (let c = 0; c < columns; c++) {
    const until = state.view.x0 + (c + 1) * width;
    let top = p < data.lb.length ? data.lb[p] : 0;
    while (p + 1 < data.lt.length && data.lt[p + 1] < until) top = Math.max(top, data.lb[++p]);
    tops[c] = top;
  }
  pen.beginPath();
  pen.moveTo(box.x, low);
  tops.forEach((top, c) => { pen.lineTo(box.x + c, y(top)); pen.lineTo(box.x + Math.min(c + 1, box.w), y(top)); });
  pen.lineTo(box.x + box.w, low);
  pen.fillStyle = paint.live;
  pen.globalAlpha = 0.3;
  pen.fill();
  pen.globalAlpha = 1;
  pen.strokeStyle = paint.live;
  pen.lineWidth = 1;
  pen.stroke();
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  pen.fillStyle = paint.soft;
  pen.fillText("live bytes", box.x - 7, low - CURVE / 2);
  if (!data.height) return;
  pen.strokeStyle = paint.soft;
  line(pen, box.x, y(data.height), box.x + box.w, y(data.height));
  if (data.bound === null || y(data.bound) - y(data.height) > 12) {
    pen.fillText("arena", box.x - 7, y(data.height) + 3);
  }
  if (data.bound === null) return;
  pen.strokeStyle = pen.fillStyle = paint.bound;
  pen.setLineDash([6, 3]);
  line(pen, box.x, y(data.bound), box.x + box.w, y(data.bound));
  pen.setLineDash([]);
  pen.textAlign = "left";
  // On a ground of its own, since the curve may run behind the words.
  const text = data.bound === data.height ? `lower bound = arena ${bytesText(data.bound)}` : `lower bound ${bytesText(data.bound)}`;
  const at = Math.min(y(data.bound) + 10, low - 8);
  pen.globalAlpha = 0.75;
  pen.fillStyle = paint.plot;
  pen.fillRect(box.x + 3, at - 7, pen.measureText(text).width + 6, 14);
  pen.globalAlpha = 1;
  pen.fillStyle = paint.bound;
  pen.fillText(text, box.x + 6, at);
}

// Index of the last point of the curve at or before a time, -1 before the first.
function pointAt(time) {
  let low = 0, high = data.lt.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data.lt[middle] <= time) low = middle + 1; else high = middle;
  }
  return low - 1;
}

const liveAt = (time) => { const p = pointAt(time); return p < 0 ? 0 : data.lb[p]; };

function drawOver() {
  const pen = over.getContext("2d");
  pen.setTransform(box.ratio, 0, 0, box.ratio, 0, 0);
  pen.clearRect(0, 0, box.width, box.height);
  pen.save();
  pen.beginPath();
  pen.rect(box.x - 1, box.y - 1, box.w + 2, box.curve + CURVE - box.y + 2);
  pen.clip();
  if (state.hoverTime !== null) {
    pen.strokeStyle = paint.soft;
    pen.globalAlpha = 0.6;
    pen.lineWidth = 1;
    line(pen, toX(state.hoverTime), box.y, toX(state.hoverTime), box.curve + CURVE);
    pen.globalAlpha = 1;
  }
  if (state.picked >= 0) outline(pen, state.picked, 2.5);
  if (state.hovered >= 0) outline(pen, data.ri[state.hovered], 1.5);
  pen.restore();
}

function outline(pen, item, width) {
  if (data.s[item] && !state.showStatic) return;
  pen.strokeStyle = paint.pick;
  pen.lineWidth = width;
  for (let r = firstRect[item]; r >= 0 && r < rects && data.ri[r] === item; r++) {
    const x = toX(data.r0[r]), y = toY(baseOf(item) + data.h[item]);
    pen.strokeRect(x, y, Math.max(toX(data.r1[r]) - x, 2), Math.max(toY(baseOf(item)) - y, 2));
  }
}
