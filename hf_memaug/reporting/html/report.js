/* Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0 */
(() => {
  "use strict";
  /* Tables: a click on a heading sorts. Numbers start with the largest; missing values stay last. */
  for (const table of document.querySelectorAll("table")) {
    table.querySelectorAll("thead th").forEach((heading, column) => {
      heading.querySelector("button").addEventListener("click", () => {
        const numeric = heading.classList.contains("number"), was = heading.getAttribute("aria-sort");
        const now = (was ? was === "descending" : !numeric) ? "ascending" : "descending";
        const sign = now === "ascending" ? 1 : -1, order = (row) => row.children[column].dataset.order;
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const x = order(a), y = order(b);
          if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
          return sign * (numeric ? x - y : x.localeCompare(y, undefined, { numeric: true }));
        });
        table.tBodies[0].append(...rows);
        table.querySelectorAll("th[aria-sort]").forEach((one) => one.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", now);
      });
    });
  }

  /* Feature maps: pointing at a row shows it. Its text is set as text: nothing of a run is parsed as markup. */
  const rows = JSON.parse(document.getElementById("rows").textContent), tip = document.getElementById("tip");
  document.addEventListener("pointerover", (event) => {
    const point = event.target.closest?.("[data-row]");
    tip.hidden = !point;
    if (!point) return;
    const [title, kind, content] = rows[point.dataset.row];
    tip.textContent = kind === "text" ? `${title}\n${content}` : title;
    if (kind === "picture") {
      const picture = document.createElement("img");
      picture.src = `data:image/jpeg;base64,${content}`;
      tip.append(picture);
    }
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.max(8, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8))}px`;
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
})();
