/* Copyright 2026 The hf_memaug authors. SPDX-License-Identifier: Apache-2.0 */
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const tip = document.getElementById("tip");

  /* Tips. Texts are put in as texts: nothing out of a run is ever parsed as markup. */
  function showTip(x, y, ...parts) {
    tip.replaceChildren(...parts);
    tip.hidden = false;
    const box = tip.getBoundingClientRect(), gap = 14;
    const left = x + gap + box.width > innerWidth - 8 ? x - gap - box.width : x + gap;
    const top = y + gap + box.height > innerHeight - 8 ? y - gap - box.height : y + gap;
    tip.style.left = `${Math.max(8, Math.min(left, innerWidth - box.width - 8))}px`;
    tip.style.top = `${Math.max(8, top)}px`;
  }
  const hideTip = () => { tip.hidden = true; };
  for (const kind of ["pointermove", "pointerdown"]) {
    document.addEventListener(kind, (event) => {
      const marked = event.target.closest?.("[data-tip]");
      if (marked) showTip(event.clientX, event.clientY, marked.dataset.tip);
      else if (!event.target.closest?.("#features-map")) hideTip();
    });
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  document.addEventListener("scroll", hideTip, { passive: true, capture: true });

  /* Tables: a click on a heading, or Enter on it, sorts; numbers fall first, texts rise, what is missing comes last. */
  for (const table of document.querySelectorAll("table.sortable")) {
    table.querySelectorAll("thead th").forEach((heading, place) => {
      heading.querySelector("button")?.addEventListener("click", () => {
        const numeric = heading.classList.contains("number");
        const was = heading.getAttribute("aria-sort");
        const now = was ? (was === "ascending" ? "descending" : "ascending") : numeric ? "descending" : "ascending";
        const sign = now === "ascending" ? 1 : -1;
        const of = (row) => row.children[place].dataset.order;
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const [x, y] = [of(a), of(b)];
          if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
          return sign * (numeric ? Number(x) - Number(y) : x.localeCompare(y, undefined, { numeric: true }));
        });
        table.tBodies[0].append(...rows);
        table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", now);
      });
    });
  }

  /* Boxes, copies, and what is folded when printed. */
  for (const button of document.querySelectorAll("[data-dialog]")) {
    const dialog = document.getElementById(button.dataset.dialog);
    button.addEventListener("click", () => dialog.showModal());
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }
  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const text = button.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        /* Not allowed in every browser for a file: what is selected can be copied by hand. */
        getSelection().selectAllChildren(text);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => folded.forEach((one) => { one.open = false; }));

  /* The navigation marks the section in sight. */
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const inSight = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((link) => link.removeAttribute("aria-current"));
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  document.querySelectorAll("main section").forEach((section) => inSight.observe(section));

  if (data.features) drawFeatures(data.features);

  /* Features in two dimensions. */
  function drawFeatures({ views, contents }) {
    const svg = document.getElementById("features-map"), legend = document.getElementById("features-legend");
    const shares = document.getElementById("features-shares"), pick = document.getElementById("features-view");
    const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`).value;
    const colours = 7, shapes = ["circle", "square", "triangle", "diamond", "cross"];
    let view, places = [], marks = [], lit = -1;

    function element(name, attributes, parent) {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      parent?.append(made);
      return made;
    }
    const outlines = {
      circle: (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
      square: (r) => `M${-0.9 * r} ${-0.9 * r}h${1.8 * r}v${1.8 * r}h${-1.8 * r}Z`,
      triangle: (r) => `M0 ${-1.2 * r}L${1.1 * r} ${0.8 * r}H${-1.1 * r}Z`,
      diamond: (r) => `M0 ${-1.25 * r}L${1.25 * r} 0L0 ${1.25 * r}L${-1.25 * r} 0Z`,
      cross: (r) => `M${-0.4 * r} ${-1.2 * r}h${0.8 * r}v${0.8 * r}h${0.8 * r}v${0.8 * r}h${-0.8 * r}v${0.8 * r}` +
        `h${-0.8 * r}v${-0.8 * r}h${-0.8 * r}v${-0.8 * r}h${0.8 * r}Z`,
      star: (r) => "M" + [...Array(10).keys()].map((i) => {
        const [size, angle] = [r * (i % 2 ? 0.62 : 1.55), Math.PI * (i / 5 - 0.5)];
        return `${(size * Math.cos(angle)).toFixed(2)} ${(size * Math.sin(angle)).toFixed(2)}`;
      }).join("L") + "Z",
    };

    /* The groups that colours stand for: [name, colour, shape]. The target domain is a star of the last colour. */
    function groups(kind) {
      if (kind === "right") return [["right", 0, "circle"], ["wrong", 6, "cross"]];
      const target = kind === "domain" ? view.domains.indexOf(view.target) : -1;
      const cycle = target < 0 ? colours : colours - 1;
      let place = 0;
      return view[`${kind}s`].map((name, index) => {
        if (index === target) return [`${name} (target)`, colours - 1, "star"];
        const shape = shapes[(place + Math.floor(place / cycle)) % shapes.length];
        return [name === "" ? "unknown" : name, place++ % cycle, shape];
      });
    }
    const isRight = (row) => view.labels[view.label[row]] === view.predicteds[view.predicted[row]];

    function draw() {
      view = views[Number(pick.value)];
      const by = chosen("features-by"), kind = chosen("features-colour"), found = groups(kind);
      const counts = found.map(() => 0), radius = view.domain.length > 250 ? 4.2 : 5;
      svg.replaceChildren();
      svg.setAttribute("aria-label", `Map of ${view.domain.length} rows, ${view.title}`);
      places = view.maps[by].map(([x, y]) => [24 + 632 * x, 436 - 412 * y]);
      marks = places.map(([x, y], row) => {
        const group = kind === "right" ? (isRight(row) ? 0 : 1) : view[kind][row];
        counts[group] += 1;
        const [, colour, shape] = found[group];
        const look = { class: `s${colour} mark`, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` };
        return element("path", { d: outlines[shape](radius), ...look }, svg);
      });
      lit = -1;
      legend.replaceChildren(...found.map(([name, colour, shape], group) => {
        const entry = document.createElement("li");
        const key = element("svg", { class: "key", viewBox: "-7 -7 14 14", "aria-hidden": "true" });
        element("path", { d: outlines[shape](5), class: `s${colour} mark` }, key);
        entry.append(key, `${name}: ${counts[group]}`);
        return entry;
      }));
      const percent = view.shares.map((share) => `${Math.round(100 * share)} %`);
      shares.textContent = by === "pca"
        ? `The two components hold ${percent.join(" and ")} of the variance.`
        : "t-SNE of the same features.";
    }

    function light(row, x, y) {
      marks[lit]?.classList.remove("lit");
      lit = row;
      if (row < 0) return hideTip();
      marks[row].classList.add("lit");
      svg.append(marks[row]);
      const title = document.createElement("strong"), parts = [title];
      title.textContent = view.domains[view.domain[row]];
      const [kind, content] = contents[view.content[row]] ?? [];
      if (kind === "picture") {
        const picture = document.createElement("img");
        picture.src = `data:image/jpeg;base64,${content}`;
        picture.alt = "";
        parts.push(picture);
      } else if (content) {
        parts.push(`${content}\n`);
      }
      const [label, predicted] = [view.labels[view.label[row]], view.predicteds[view.predicted[row]]];
      if (label) parts.push(`label: ${label}\n`);
      if (predicted) parts.push(`predicted: ${predicted}${label && !isRight(row) ? " (wrong)" : ""}`);
      showTip(x, y, ...parts);
    }
    function onScreen(row) {
      const box = svg.getBoundingClientRect();
      return [box.left + places[row][0] * box.width / 680, box.top + places[row][1] * box.height / 460];
    }
    for (const kind of ["pointermove", "pointerdown"]) {
      svg.addEventListener(kind, (event) => {
        const reach = event.pointerType === "touch" ? 28 : 16;
        let best = -1, least = reach * reach;
        places.forEach((_, row) => {
          const [x, y] = onScreen(row), far = (x - event.clientX) ** 2 + (y - event.clientY) ** 2;
          if (far < least) [best, least] = [row, far];
        });
        light(best, event.clientX, event.clientY);
      });
    }
    /* A finger leaves as soon as it has tapped. */
    svg.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") light(-1); });
    svg.addEventListener("blur", () => light(-1));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const row = lit < 0 && step < 0 ? places.length - 1 : (lit + step + places.length) % places.length;
      light(row, ...onScreen(row));
    });
    pick.addEventListener("change", draw);
    document.querySelectorAll('input[name^="features-"]').forEach((one) => one.addEventListener("change", draw));
    draw();
  }
})();
