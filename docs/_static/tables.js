// Long tables, such as the support matrix, get a field that leaves the rows with all words that are typed.
(() => {
  const LONG = 30; // rows; shorter tables are read at a glance

  function search(table) {
    const rows = [...table.tBodies[0].rows];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const failing = rows.map((row) => /[✗~]/.test(row.textContent));

    const form = document.createElement("div");
    form.className = "table-search";
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "Search this table";
    field.setAttribute("aria-label", "Search this table");
    const count = document.createElement("span");
    count.setAttribute("aria-live", "polite");
    const only = document.createElement("input");
    only.type = "checkbox";
    form.append(field);
    if (failing.some(Boolean)) {
      const label = document.createElement("label");
      label.append(only, " only rows with ✗ or ~");
      form.append(label);
    }
    form.append(count);

    function update() {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, k) => {
        row.hidden = !words.every((word) => texts[k].includes(word)) || (only.checked && !failing[k]);
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = `${shown} of ${rows.length} rows`;
    }
    field.addEventListener("input", update);
    only.addEventListener("change", update);
    update();

    const wrapper = table.closest(".table-wrapper");
    (wrapper ?? table).before(form);
    wrapper?.classList.add("long");
  }

  for (const table of document.querySelectorAll("article table")) {
    if (table.tHead && table.tBodies.length === 1 && table.tBodies[0].rows.length > LONG) search(table);
  }
})();
