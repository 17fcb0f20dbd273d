"use strict";
// Makes tables sortable by their last row of heads: rising, falling, and back to the page's own order.
(() => {
  const NUMBER = /^=?\s*([-−+]?(?:\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|inf|∞))(?:\s*[(±].*)?$/i;
  const NOTHING = new Set(["", "–", "—", "nan", "n/a"]);

  // What a cell says first: not its interval below, nor its letters.
  function text(cell) {
    if ("value" in cell.dataset) return cell.dataset.value;
    let said = "";
    for (const node of cell.childNodes) {
      if (node.nodeName === "BR") break;
      if (node.nodeName !== "SUP") said += node.textContent;
    }
    return said.trim();
  }

  function number(said) {
    const found = NUMBER.exec(said);
    if (!found) return NaN;
    const plain = found[1].replaceAll(",", "").replace("−", "-");
    return /inf|∞/i.test(plain) ? (plain.startsWith("-") ? -Infinity : Infinity) : Number(plain);
  }

  // "gamma 0.05" comes before "gamma 0.1", and "epochs 9" before "epochs 10".
  function compareTexts(one, other) {
    const [parts, others] = [one, other].map((said) => said.split(/(\d+(?:\.\d+)?(?:e[-+]?\d+)?)/i));
    for (let at = 0; at < Math.min(parts.length, others.length); at++) {
      const order = at % 2 ? parts[at] - others[at] : parts[at].localeCompare(others[at], "en");
      if (order) return order;
    }
    return parts.length - others.length;
  }

  function sortBy(table, column, direction) {
    table.classList.toggle("sorted", direction !== 0);
    for (const body of table.tBodies) {
      const rows = original.get(body);
      const keyed = rows.map((row) => ({ row, said: text(row.cells[column]) }));
      const known = keyed.filter(({ said }) => !NOTHING.has(said.toLowerCase()));
      const unknown = keyed.filter(({ said }) => NOTHING.has(said.toLowerCase()));
      for (const each of known) each.number = number(each.said);
      const areNumbers = known.every((each) => !Number.isNaN(each.number));
      const compare = areNumbers
        ? (a, b) => (a.number < b.number ? -1 : a.number > b.number ? 1 : 0)
        : (a, b) => compareTexts(a.said, b.said);
      if (direction) known.sort((a, b) => direction * compare(a, b));
      body.append(...(direction ? [...known, ...unknown].map(({ row }) => row) : rows));
    }
  }

  const original = new Map();
  for (const table of document.querySelectorAll(".scroll > table")) {
    const heads = table.tHead ? [...table.tHead.rows].at(-1).cells : [];
    const bodies = [...table.tBodies];
    if (!bodies.some((body) => body.rows.length > 1)) continue;
    for (const body of bodies) original.set(body, [...body.rows]);
    [...heads].forEach((head, column) => {
      if (!head.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const next = { ascending: "descending", descending: null }[head.getAttribute("aria-sort")];
        for (const other of heads) other.removeAttribute("aria-sort");
        const direction = next === undefined ? "ascending" : next;
        if (direction) head.setAttribute("aria-sort", direction);
        sortBy(table, column, { ascending: 1, descending: -1 }[direction] ?? 0);
      });
    });
  }
})();
