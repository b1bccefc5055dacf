"use strict";
// Texts, widths, paths and places come ready from the page's data: nothing is computed here.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  root.classList.add("scripted");
  let setting = data.start;
  const text = (name) => data.strings[data.columns[name][setting]];
  const all = (selector, from = document) => Array.from(from.querySelectorAll(selector));

  function sortable(table) {
    const body = table.tBodies[0];
    const original = Array.from(body.rows);
    const heads = all("thead th", table);
    const key = (row, at) => {
      const cell = row.cells[at];
      return "sort" in cell.dataset ? Number(cell.dataset.sort) : null;
    };
    const compare = (at, down) => (a, b) => {
      const [x, y] = [key(a, at), key(b, at)];
      if (x !== null && y !== null) return down ? y - x : x - y;
      if (x !== null || y !== null) return x !== null ? -1 : 1; // without a value: last
      const order = a.cells[at].textContent.localeCompare(b.cells[at].textContent);
      return down ? -order : order;
    };
    heads.forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const was = head.getAttribute("aria-sort");
        // Numbers begin with the largest, words with the first; a third press restores the order.
        const first = head.classList.contains("number") ? "descending" : "ascending";
        const second = first === "descending" ? "ascending" : "descending";
        const next = was === null ? first : was === first ? second : null;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        if (next !== null) head.setAttribute("aria-sort", next);
        const down = next === "descending";
        body.append(...(next === null ? original : [...original].sort(compare(at, down))));
      });
    });
  }
  all("table.sorts").forEach(sortable);
  if (setting === null) return;

  const sliders = { batch: document.getElementById("slide-batch"), prompt: document.getElementById("slide-prompt") };
  const width = data.batches.length;
  const texts = all("[data-text]");
  const widths = all("[data-width]");
  const paths = all("[data-path]");
  const places = all("[data-place]");

  function put(mark, place) {
    if (place === "") {
      mark.setAttribute("visibility", "hidden");
      return;
    }
    const [x, y, scale] = place.split(" ");
    mark.removeAttribute("visibility");
    mark.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
  }

  function show() {
    for (const one of texts) one.textContent = text(one.dataset.text);
    for (const one of widths) one.style.width = text(one.dataset.width);
    for (const one of paths) one.setAttribute("d", text(one.dataset.path));
    for (const one of places) put(one, text(one.dataset.place));
    for (const [name, slider] of Object.entries(sliders)) {
      slider.setAttribute("aria-valuetext", text(name));
    }
    document.getElementById("explore").classList.toggle("same", setting === data.asked);
    pictures.forEach(enter);
    refresh();
  }

  // The mark that the tab key goes to: the one it was at, or the first that is there.
  const pictures = all(".roofline .picture").map((picture) => all(".mark", picture));
  const hidden = (mark) => mark.getAttribute("visibility") === "hidden";
  function enter(marks) {
    const at = marks.find((mark) => mark.tabIndex === 0 && !hidden(mark)) ?? marks.find((mark) => !hidden(mark));
    marks.forEach((mark) => mark.setAttribute("tabindex", mark === at ? "0" : "-1"));
  }

  let later = 0;
  function say() {
    clearTimeout(later);
    later = setTimeout(() => { document.getElementById("said").textContent = text("said"); }, 400);
  }

  function move() {
    setting = Number(sliders.prompt.value) * width + Number(sliders.batch.value);
    show();
    say();
  }
  function go(to) {
    sliders.batch.value = to % width;
    sliders.prompt.value = Math.floor(to / width);
    move();
  }
  Object.values(sliders).forEach((slider) => slider.addEventListener("input", move));
  document.getElementById("back").addEventListener("click", () => go(data.asked));

  // The mark that is pointed at, or that has the focus, and what is said of it.
  const tip = document.getElementById("tip");
  let on = null;
  function light(mark) {
    if (on !== null) on.classList.remove("on");
    on = mark;
    if (mark !== null) mark.classList.add("on");
    refresh();
  }
  function refresh() {
    if (tip === null) return;
    const there = on !== null && !hidden(on);
    tip.hidden = !there;
    if (!there) return;
    const { mark, name, phase } = on.dataset;
    tip.querySelector("strong").textContent = name;
    tip.querySelector(".phase").textContent = phase;
    const said = all("[data-tip]", tip).map((cell) => {
      cell.textContent = text(`tip.${mark}.${cell.dataset.tip}`);
      return `${cell.previousElementSibling.textContent} ${cell.textContent}`;
    });
    on.setAttribute("aria-label", `${name}, ${phase}: ${said.join("; ")}`);
    stand();
  }
  function stand() {
    tip.style.left = tip.style.top = "0";
    if (getComputedStyle(tip).position !== "absolute") return;
    const box = document.getElementById("roofline").getBoundingClientRect();
    const at = on.getBoundingClientRect();
    const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
    const right = at.right - box.left + 10;
    const left = right + wide <= box.width ? right : at.left - box.left - wide - 10;
    const top = (at.top + at.bottom) / 2 - box.top - high / 2;
    tip.style.left = `${Math.max(0, left)}px`;
    tip.style.top = `${Math.min(Math.max(0, top), Math.max(0, box.height - high))}px`;
  }

  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  function keyed(event, marks) {
    if (event.key === "Escape") {
      light(null);
      return;
    }
    if (!(event.key in steps)) return;
    event.preventDefault();
    const seen = marks.filter((mark) => !hidden(mark));
    const at = seen.indexOf(document.activeElement);
    if (seen.length > 0) seen[(at + steps[event.key] + seen.length) % seen.length].focus();
  }
  for (const marks of pictures) {
    enter(marks);
    for (const mark of marks) {
      mark.addEventListener("pointerenter", () => light(mark));
      mark.addEventListener("click", () => light(mark));
      mark.addEventListener("focus", () => {
        marks.forEach((other) => other.setAttribute("tabindex", other === mark ? "0" : "-1"));
        light(mark);
      });
      mark.addEventListener("blur", () => light(null));
      mark.addEventListener("pointerleave", (event) => {
        if (event.pointerType === "mouse" && document.activeElement !== mark) light(null);
      });
    }
    marks[0].parentNode.addEventListener("keydown", (event) => keyed(event, marks));
  }
  // A reload may keep the sliders where they were.
  if (Number(sliders.prompt.value) * width + Number(sliders.batch.value) !== setting) move();
})();
