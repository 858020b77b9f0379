"use strict";
// Filters and sorts rows that are there without it, and lists the cases of a finding when asked to.
(() => {
  const form = document.getElementById("filter");
  const body = document.querySelector("#table tbody");
  const rows = [...body.rows];
  const shown = document.getElementById("shown");
  const names = JSON.parse(document.getElementById("names").textContent);
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const order = new Map(rows.map((row, place) => [row, place]));
  const heads = [...document.querySelectorAll("#table th[data-sort]")];

  function fits(row) {
    const want = form.elements;
    const words = want.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    return (
      (!want.framework.value || row.dataset.border.startsWith(`${want.framework.value}-`)) &&
      (!want.border.value || row.dataset.border === want.border.value) &&
      (!want.kind.value || row.dataset.kinds.split(" ").includes(want.kind.value)) &&
      (!want.silent.checked || "silent" in row.dataset) &&
      words.every((word) => texts.get(row).includes(word))
    );
  }

  function sort() {
    const wanted = form.elements.sort.value;
    const key = wanted.replace("-", "");
    const sign = wanted.startsWith("-") ? -1 : 1;
    const value = (row) => (key === "rank" ? order.get(row) : Number(row.dataset[key]));
    rows.sort((a, b) => sign * (value(a) - value(b)) || order.get(a) - order.get(b));
    body.append(...rows);
    for (const head of heads) {
      if (head.dataset.sort !== key) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    }
  }

  function filter() {
    let count = 0;
    for (const row of rows) {
      row.hidden = !fits(row);
      count += row.hidden ? 0 : 1;
    }
    shown.textContent = `${count} of ${rows.length} findings`;
  }

  // "3-5,9" names the third to fifth of the list, and the ninth.
  function listed(spans) {
    return spans.split(",").flatMap((span) => {
      const [first, last = first] = span.split("-").map(Number);
      return names.slice(first, last + 1);
    });
  }

  body.addEventListener("toggle", (event) => {
    const list = event.target.querySelector("ul");
    if (!list || list.childElementCount) return;
    for (const name of listed(event.target.dataset.cases)) {
      const item = document.createElement("li");
      item.append(document.createElement("code"));
      item.firstChild.textContent = name;
      list.append(item);
    }
  }, true);

  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const key = head.dataset.sort;
      const now = form.elements.sort.value;
      const ways = [...form.elements.sort.options].map((option) => option.value)
        .filter((way) => way.replace("-", "") === key);
      form.elements.sort.value = ways[(ways.indexOf(now) + 1) % ways.length];
      sort();
    });
  }

  document.getElementById("overview").addEventListener("click", (event) => {
    const link = event.target.closest("a[data-border]");
    if (!link) return;
    form.reset();
    form.elements.border.value = link.dataset.border;
    form.elements.kind.value = link.dataset.kind || "";
    filter();
  });

  form.addEventListener("input", filter);
  form.elements.sort.addEventListener("change", sort);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { sort(); filter(); }));
  form.hidden = false;
  sort();
  filter();
})();
