"use strict";
// Shows a prompt, its reference, and what two chosen points wrote after it, side by side with the differences marked.
(() => {
  const stored = document.getElementById("texts-data");
  if (!stored) return;
  const data = JSON.parse(stored.textContent);
  const viewer = document.querySelector(".viewer");
  const select = (name) => viewer.querySelector(`select[name=${name}]`);
  const REDACTED = /^\[\d+ words? redacted\]$/;
  const chosen = { text: 0, left: 0, right: Math.min(1, data.points.length - 1) };
  chosen.text = Math.max(0, data.texts.findIndex((text) => !REDACTED.test(text.reference)));

  function option(parent, value, label) {
    const element = parent.appendChild(document.createElement("option"));
    element.value = value;
    element.textContent = label;
  }

  // For each word whether it belongs to a longest common subsequence with the other text.
  function common(words, others) {
    const longest = Array.from({ length: words.length + 1 }, () => new Uint16Array(others.length + 1));
    for (let i = words.length - 1; i >= 0; i--) {
      for (let j = others.length - 1; j >= 0; j--) {
        const skipped = Math.max(longest[i + 1][j], longest[i][j + 1]);
        longest[i][j] = words[i] === others[j] ? longest[i + 1][j + 1] + 1 : skipped;
      }
    }
    const shared = words.map(() => false);
    for (let i = 0, j = 0; i < words.length && j < others.length; ) {
      if (words[i] === others[j]) {
        shared[i++] = true;
        j++;
      } else if (longest[i + 1][j] >= longest[i][j + 1]) i++;
      else j++;
    }
    return shared;
  }

  function show(place, written, other) {
    const paragraph = viewer.querySelector(`.${place} .text`);
    paragraph.replaceChildren();
    if (written === null) {
      paragraph.textContent = "No text of this point was kept.";
      return;
    }
    const parts = written.split(/(\s+)/);
    const words = parts.filter((_, index) => index % 2 === 0);
    const shared = other === null ? words.map(() => true) : common(words, other.split(/\s+/));
    parts.forEach((part, index) => {
      if (index % 2 || shared[index / 2]) paragraph.append(part);
      else paragraph.appendChild(document.createElement("mark")).textContent = part;
    });
  }

  function draw() {
    const text = data.texts[chosen.text];
    viewer.querySelector(".prompt .text").textContent = text.prompt;
    viewer.querySelector(".reference .text").textContent = text.reference;
    viewer.querySelector(".reference h4").textContent = text.kind === "forget" ? "the forget set's own text" : "a person's";
    const [left, right] = [chosen.left, chosen.right].map((point) => data.points[point].written[chosen.text] ?? null);
    const isRedacted = REDACTED.test(text.reference);
    const against = isRedacted ? [null, null] : text.kind === "forget" ? [text.reference, text.reference] : [right, left];
    show("left", left, against[0]);
    show("right", right, against[1]);
    viewer.querySelector(".marks").textContent = isRedacted
      ? "The text is redacted, so nothing is marked."
      : text.kind === "forget"
        ? "Marked: what is not as in the forget set."
        : "Marked: what the other of the two did not write.";
  }

  data.texts.forEach((text, index) => {
    const start = text.prompt.length > 60 ? `${text.prompt.slice(0, 60)}…` : text.prompt;
    option(select("text"), index, `${text.kind}: ${start}`);
  });
  for (const side of ["left", "right"]) {
    const groups = new Map();
    data.points.forEach(({ label, at }, index) => {
      if (!groups.has(label)) {
        const group = document.createElement("optgroup");
        group.label = label;
        groups.set(label, select(side).appendChild(group));
      }
      option(groups.get(label), index, at ? `${label}, ${at}` : label);
    });
  }
  for (const name of ["text", "left", "right"]) {
    select(name).value = chosen[name];
    select(name).addEventListener("change", () => {
      chosen[name] = Number(select(name).value);
      draw();
    });
  }
  draw();
  viewer.hidden = false;
})();
