"use strict";
// Draws the choosable trade-off figure from the data beside it; the static one stays in its place until it has.
(() => {
  const data = JSON.parse(document.getElementById("choosable-data").textContent);
  const figure = document.getElementById("tradeoff");
  const root = figure.querySelector(".choosable");
  const parts = [".plot", ".plot svg", ".tooltip", ".legend", ".dashes", ".note"];
  const [plot, svg, tooltip, legend, dashes, note] = parts.map((part) => root.querySelector(part));
  const MARGIN = { top: 14, right: 18, bottom: 58, left: 66 };
  const REACH = 16; // How near, in pixels, the pointer must be to a point to mean it.
  const DASHES = ["", "7 4", "2 4", "9 3 2 3", "14 4"];
  const chosen = { x: data.x, y: data.y, model: data.models.length > 1 ? 1 : 0, collapsed: true, hidden: new Set() };
  let drawn = []; // Each point that is seen: {point, x, y, link}.

  const add = (parent, name, attributes = {}, text = "", namespace = parent.namespaceURI) => {
    const element = document.createElementNS(namespace, name);
    for (const [key, value] of Object.entries(attributes)) {
      // The page's policy takes no style attribute, which a text could bring too.
      if (key === "colour") element.style.setProperty("--colour", value);
      else element.setAttribute(key, value);
    }
    if (text !== "") element.textContent = text;
    return parent.appendChild(element);
  };
  const many = data.models.length > 1;
  const scaleOf = (metric) => data.scales[metric][chosen.model][chosen.collapsed ? 0 : 1];
  const share = (scale, value) => {
    const along = scale.is_log ? Math.log10(Math.max(0, value)) : value; // An interval may reach below 0.
    return (along - scale.low) / (scale.high - scale.low);
  };
  const title = (metric) => [data.metrics[metric].title, data.metrics[metric].subscript].filter(Boolean).join("_");
  const isChosen = (point) =>
    (chosen.model === 0 || point.model === chosen.model - 1) &&
    !chosen.hidden.has(point.variant) &&
    (chosen.collapsed || !point.is_collapsed);
  const isReference = (point) => data.variants[point.variant].is_reference;
  const name = (point) => data.variants[point.variant].label + (many ? " on " + data.models[point.model] : "");

  function draw() {
    const width = Math.max(280, plot.clientWidth || figure.clientWidth);
    const height = Math.round(Math.min(560, Math.max(320, 0.6 * width)));
    svg.replaceChildren();
    tooltip.hidden = true;
    dashes.hidden = !many || chosen.model !== 0;
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    svg.setAttribute("aria-label", `${title(chosen.y)} against ${title(chosen.x)}`);
    const box = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom };
    const scales = { x: scaleOf(chosen.x), y: scaleOf(chosen.y) };
    const at = {
      x: (value) => box.left + share(scales.x, value) * (box.right - box.left),
      y: (value) => box.bottom - share(scales.y, value) * (box.bottom - box.top),
    };
    drawAxes(box, scales);
    const shown = data.points.filter(isChosen);
    const places = new Map();
    for (const point of shown) {
      const [x, y] = [point.numbers[chosen.x], point.numbers[chosen.y]];
      if (x !== null && y !== null) places.set(point, [at.x(x), at.y(y)]);
    }
    // A guide does not say which model it is of.
    if (!many || chosen.model !== 0) drawGuides(shown, places, at, box);
    drawLines(places);
    drawIntervals(places, at, box);
    drawPoints(places, box);
    const lacking = shown.filter((point) => !places.has(point) && !isReference(point)).length;
    const reason = lacking ? ` ${lacking} not drawn: without a number on one of the axes.` : "";
    const bars = shown.some((point) => point.intervals.some(Boolean)) ? " Bars: 95 % intervals." : "";
    note.textContent = `${places.size} ${places.size === 1 ? "point" : "points"}.${reason}${bars}`;
  }

  function drawAxes(box, scales) {
    const axes = add(svg, "g", { class: "axes" });
    let free = -Infinity;
    for (const [share, label] of scales.x ? scales.x.ticks : []) {
      const x = box.left + share * (box.right - box.left);
      add(axes, "path", { class: "grid", d: `M${x} ${box.top}V${box.bottom}` });
      const half = 3.6 * label.length;
      if (x - half < free) continue;
      free = x + half + 8;
      add(axes, "text", { x, y: box.bottom + 18, "text-anchor": "middle" }, label);
    }
    for (const [share, label] of scales.y ? scales.y.ticks : []) {
      const y = box.bottom - share * (box.bottom - box.top);
      add(axes, "path", { class: "grid", d: `M${box.left} ${y}H${box.right}` });
      add(axes, "text", { x: box.left - 8, y: y + 4, "text-anchor": "end" }, label);
    }
    add(axes, "path", { class: "frame", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` });
    const middle = { x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2 };
    drawTitle(axes, chosen.x, scales.x, { x: middle.x, y: box.bottom + 44 });
    drawTitle(axes, chosen.y, scales.y, { transform: `translate(18 ${middle.y}) rotate(-90)` });
  }

  function drawTitle(axes, metric, scale, place) {
    const { title, subscript, arrow, about } = data.metrics[metric];
    const text = add(axes, "text", { class: "title", "text-anchor": "middle", ...place });
    add(text, "tspan", {}, title);
    if (subscript) add(text, "tspan", { class: "subscript", dy: "0.3em" }, subscript);
    add(text, "tspan", subscript ? { dy: "-0.22em" } : {}, ` ${arrow}`);
    add(text, "tspan", { class: "about", dx: "0.6em" }, about + (scale && scale.is_log ? ", log scale" : ""));
  }

  function drawGuides(shown, places, at, box) {
    for (const point of shown.filter(isReference)) {
      const { label, colour } = data.variants[point.variant];
      const [x, y] = [point.numbers[chosen.x], point.numbers[chosen.y]];
      const guides = add(svg, "g", { class: "guide", colour });
      if (x !== null && scaleOf(chosen.x)) add(guides, "path", { d: `M${at.x(x)} ${box.top}V${box.bottom}` });
      if (y !== null && scaleOf(chosen.y)) add(guides, "path", { d: `M${box.left} ${at.y(y)}H${box.right}` });
      if (places.has(point)) continue;
      const beside = y !== null ? [box.right - 4, at.y(y) - 5, 0] : x !== null ? [at.x(x) - 5, box.top + 4, -90] : null;
      if (!beside) continue;
      const [left, top, turn] = beside;
      add(guides, "text", { transform: `translate(${left} ${top}) rotate(${turn})`, "text-anchor": "end" }, label);
    }
  }

  function drawLines(places) {
    for (const line of data.lines) {
      const points = line.map((index) => data.points[index]);
      // Only neighbours are joined: across a point that is missing or hidden there is nothing measured.
      const path = points.map((point, index) => {
        if (!places.has(point)) return "";
        return (index && places.has(points[index - 1]) ? "L" : "M") + places.get(point).join(" ");
      });
      const last = points[points.length - 1]; // The first is the original.
      if (chosen.hidden.has(last.variant)) continue;
      const { colour } = data.variants[last.variant];
      const dash = chosen.model === 0 ? DASHES[last.model % DASHES.length] : "";
      add(svg, "path", { class: "line", d: path.join(""), colour, "stroke-dasharray": dash });
    }
  }

  function drawIntervals(places, at, box) {
    const inside = (value, low, high) => Math.min(high, Math.max(low, value));
    for (const [point, [x, y]] of places) {
      const [acrossEnds, upEnds] = [point.intervals[chosen.x], point.intervals[chosen.y]];
      const across = acrossEnds && acrossEnds.map((value) => inside(at.x(value), box.left, box.right));
      const up = upEnds && upEnds.map((value) => inside(at.y(value), box.top, box.bottom));
      const d = (across ? `M${across[0]} ${y}H${across[1]}` : "") + (up ? `M${x} ${up[0]}V${up[1]}` : "");
      if (d) add(svg, "path", { class: "interval", d, colour: data.variants[point.variant].colour });
    }
  }

  function drawPoints(places, box) {
    const referencesLast = [...places].sort(([a], [b]) => isReference(a) - isReference(b));
    drawn = referencesLast.map(([point, [x, y]]) => {
      const { colour, marker } = data.variants[point.variant];
      const numbers = [chosen.y, chosen.x].map((metric) => `${title(metric)} ${point.texts[metric]}`);
      const link = add(svg, "a", {
        href: `#point-${point.id}`,
        class: point.is_collapsed ? "point collapsed" : "point",
        transform: `translate(${x} ${y})`,
        colour: point.is_collapsed ? data.collapsed_colour : colour,
        tabindex: -1, // One of them all is a tab stop; the arrow keys lead from one to the next.
        "aria-label": [name(point), ...point.words, ...numbers].join(", "),
      });
      add(link, "circle", { class: "ring", r: 11 });
      add(link, "path", { class: "marker", d: marker });
      const seen = { point, x, y, link };
      link.addEventListener("focus", () => tell(seen));
      link.addEventListener("blur", () => tell(null));
      return seen;
    });
    drawn.sort((a, b) => a.x - b.x || a.y - b.y);
    if (drawn.length) drawn[0].link.setAttribute("tabindex", 0);
    drawStrengths(box);
    if (!places.size) {
      const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
      add(svg, "text", { x, y, "text-anchor": "middle" }, "No chosen point has both numbers.");
    }
  }

  function drawStrengths(box) {
    const taken = drawn.map(({ x, y }) => ({ left: x - 7, right: x + 7, top: y - 7, bottom: y + 7 }));
    const overlaps = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    for (const { point, x, y } of drawn) {
      const width = 6.2 * point.strength.length;
      // The tooltip alone shows a strength that has no room on either side.
      for (const left of point.strength ? [x + 9, x - 9 - width] : []) {
        const place = { left, right: left + width, top: y - 7, bottom: y + 5 };
        if (left < box.left || place.right > box.right + MARGIN.right || taken.some((other) => overlaps(place, other))) continue;
        add(svg, "text", { class: "strength", x: left, y: y + 4 }, point.strength);
        taken.push(place);
        break;
      }
    }
  }

  function step(event) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const at = drawn.findIndex(({ link }) => link === document.activeElement);
    if (!by || at < 0) return;
    event.preventDefault();
    const next = drawn[(at + by + drawn.length) % drawn.length].link;
    drawn[at].link.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  }

  function nearest(event) {
    const { left, top } = svg.getBoundingClientRect();
    const distance = ({ x, y }) => Math.hypot(event.clientX - left - x, event.clientY - top - y);
    const within = drawn.filter((seen) => distance(seen) <= REACH);
    return within.length ? within.reduce((best, seen) => (distance(seen) < distance(best) ? seen : best)) : null;
  }

  function tell(seen) {
    for (const { link } of drawn) link.classList.toggle("told", seen !== null && link === seen.link);
    svg.classList.toggle("near", seen !== null);
    tooltip.hidden = seen === null;
    if (seen === null) return;
    const { point, x, y } = seen;
    tooltip.replaceChildren();
    add(tooltip, "strong", {}, name(point));
    for (const words of point.words) add(tooltip, "p", {}, words);
    const axes = new Set([chosen.y, chosen.x]);
    const others = [...data.metrics.keys()].filter((metric) => !axes.has(metric) && point.numbers[metric] !== null);
    for (const [kind, metrics] of [["axis", [...axes]], ["other", others]]) {
      const list = add(tooltip, "dl", { class: kind });
      for (const metric of metrics) {
        const { title, subscript } = data.metrics[metric];
        const term = add(list, "dt", {}, title);
        if (subscript) add(term, "sub", {}, subscript);
        add(list, "dd", {}, point.texts[metric]);
      }
    }
    const { offsetWidth: width, offsetHeight: height } = tooltip;
    const left = x + 16 + width <= plot.clientWidth ? x + 16 : x - 16 - width;
    const fits = left >= 0; // Else it stands below the plot, so that it covers no point.
    tooltip.style.left = `${Math.max(0, left)}px`;
    const top = fits ? Math.max(0, Math.min(y - height / 2, plot.clientHeight - height)) : plot.clientHeight;
    tooltip.style.top = `${top}px`;
  }

  function fillChoice(field, choices) {
    const select = root.querySelector(`select[name=${field}]`);
    const groups = new Map();
    choices.forEach(({ label, group }, index) => {
      if (group && !groups.has(group)) groups.set(group, add(select, "optgroup", { label: group }));
      add(group ? groups.get(group) : select, "option", { value: index }, label);
    });
    select.value = chosen[field];
    select.addEventListener("change", () => {
      chosen[field] = Number(select.value);
      draw();
    });
  }

  function swatch(parent, size, paths) {
    const drawing = add(parent, "svg", { ...size, "aria-hidden": true }, "", svg.namespaceURI);
    for (const path of paths) add(drawing, "path", path);
  }

  function fillLegend() {
    const buttons = data.variants.map(({ label, colour, marker, is_reference }, variant) => {
      const button = add(legend, "button", { type: "button", colour });
      const paths = [{ class: "marker", d: marker }];
      if (!is_reference) paths.unshift({ class: "line", d: "M-14 0H14" });
      swatch(button, { width: 28, height: 20, viewBox: "-14 -10 28 20" }, paths);
      add(button, "span", {}, label);
      button.addEventListener("click", () => {
        if (!chosen.hidden.delete(variant)) chosen.hidden.add(variant);
        press();
      });
      return button;
    });
    const press = () => {
      buttons.forEach((button, variant) => button.setAttribute("aria-pressed", !chosen.hidden.has(variant)));
      draw();
    };
    for (const [label, hidden] of [["all", []], ["none", data.variants.map((_, variant) => variant)]]) {
      const button = add(legend, "button", { type: "button", class: "every" }, label);
      button.addEventListener("click", () => {
        chosen.hidden = new Set(hidden);
        press();
      });
    }
    data.models.forEach((model, index) => {
      const dash = add(dashes, "span");
      const line = { class: "line", d: "M0 0H40", "stroke-dasharray": DASHES[index % DASHES.length] };
      swatch(dash, { width: 40, height: 10, viewBox: "0 -5 40 10" }, [line]);
      add(dash, "span", {}, model);
    });
    press();
  }

  const metrics = data.metrics.map(({ group }, index) => ({ label: title(index), group }));
  fillChoice("x", metrics);
  fillChoice("y", metrics);
  fillChoice("model", ["all models", ...data.models].map((label) => ({ label })));
  root.querySelector("select[name=model]").parentElement.hidden = !many;
  const box = root.querySelector("input[name=collapsed]");
  box.parentElement.hidden = !data.points.some((point) => point.is_collapsed);
  box.addEventListener("change", () => {
    chosen.collapsed = box.checked;
    draw();
  });
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") tell(null);
    step(event);
  });
  // Markers overlap, so the pointer means the nearest one; the arrow keys reach each.
  svg.addEventListener("pointermove", (event) => tell(nearest(event)));
  svg.addEventListener("pointerleave", () => tell(null));
  svg.addEventListener("click", (event) => {
    const seen = event.target.closest("a") ? null : nearest(event);
    if (seen) window.location.hash = seen.link.getAttribute("href");
  });
  fillLegend();
  root.hidden = false;
  figure.classList.add("drawn");
  const resized = new ResizeObserver(() => {
    if (plot.clientWidth !== svg.clientWidth) draw();
  });
  resized.observe(plot);
})();
