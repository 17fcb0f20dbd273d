"use strict";
// Gives each picture an SVG and a PNG, and each table its numbers as CSV, to save. Nothing is asked of a server.
(() => {
  const SCALE = 2; // Of a PNG's pixels to the picture's own.
  const sweep = document.title.split(" · ")[0];

  // A picture or table is named after the heading above it, and numbered where that has several.
  const counts = new Map();
  function fileName(element, ending) {
    const headings = [...document.querySelectorAll("h2[id]")];
    const above = headings.filter((heading) => heading.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING);
    const stem = `${sweep}-${above.length ? above.at(-1).id : "answer"}`;
    counts.set(stem + ending, (counts.get(stem + ending) ?? 0) + 1);
    const count = counts.get(stem + ending);
    return `${stem}${count > 1 ? `-${count}` : ""}.${ending}`;
  }

  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  function bytes(source) {
    return Uint8Array.from(atob(source.slice(source.indexOf(",") + 1)), (character) => character.charCodeAt(0));
  }

  function csv(table) {
    const said = (cell) => {
      // An interval stands in a line of its own, below the number.
      const parts = [...cell.childNodes].map((node) => (node.nodeName === "BR" ? " " : node.textContent));
      return parts.join("").replace(/[↕▲▼]/g, "").replace(/\s+/g, " ").trim();
    };
    const line = (row) => [...row.cells].flatMap((cell) => [said(cell), ...Array(cell.colSpan - 1).fill("")]);
    const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    return [...table.rows].map((row) => line(row).map(quoted).join(",") + "\n").join("");
  }

  function offer(after, choices) {
    const line = document.createElement("p");
    line.className = "downloads soft";
    for (const [label, act] of choices) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.addEventListener("click", act);
      line.append(button);
    }
    after.after(line);
  }

  for (const image of document.querySelectorAll("figure img")) {
    const kind = /^data:image\/([a-z]+)/.exec(image.src)[1];
    const choices = [];
    if (kind === "svg") {
      const name = fileName(image, "svg");
      choices.push(["SVG", () => save(new Blob([bytes(image.src)], { type: "image/svg+xml" }), name)]);
    }
    const name = fileName(image, "png");
    choices.push(["PNG", () => {
      const canvas = document.createElement("canvas");
      canvas.width = SCALE * image.naturalWidth;
      canvas.height = SCALE * image.naturalHeight;
      const context = canvas.getContext("2d");
      context.fillStyle = getComputedStyle(document.body).backgroundColor;
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save(blob, name), "image/png");
    }]);
    offer(image.closest("picture") ?? image, choices);
  }
  for (const table of document.querySelectorAll(".scroll > table")) {
    const name = fileName(table, "csv");
    if (table.tHead) offer(table.parentElement, [["CSV", () => save(new Blob([csv(table)], { type: "text/csv" }), name)]]);
  }
})();
