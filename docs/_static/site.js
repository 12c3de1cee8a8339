(() => {
  // Long tables, such as the support matrix, get a field that leaves the rows with all words that are typed.
  const LONG = 30; // rows; shorter tables are read at a glance

  function search(table) {
    const rows = [...table.tBodies[0].rows];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const failing = rows.map((row) => /[✗~]/.test(row.textContent));

    const form = document.createElement("div");
    form.className = "table-search";
    form.setAttribute("role", "search");
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
      count.textContent = shown ? `${shown} of ${rows.length} rows` : "No row has all of these words. Escape shows all rows.";
    }
    field.addEventListener("input", update);
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      field.value = "";
      only.checked = false;
      update();
    });
    only.addEventListener("change", update);
    update();

    const wrapper = table.closest(".table-wrapper");
    (wrapper ?? table).before(form);
    wrapper?.classList.add("long");
  }

  for (const table of document.querySelectorAll("article table")) {
    if (table.tHead && table.tBodies.length === 1 && table.tBodies[0].rows.length > LONG) search(table);
  }

  // A table that scrolls in itself can be reached, and so scrolled, by keyboard.
  const reach = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const box = target.closest(".table-wrapper");
      const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
      if (scrolls) {
        box.tabIndex = 0;
        box.setAttribute("role", "region");
        box.setAttribute("aria-label", "Table that scrolls");
      } else {
        for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
      }
    }
  });
  for (const box of document.querySelectorAll("article .table-wrapper")) {
    reach.observe(box);
    if (box.firstElementChild) reach.observe(box.firstElementChild);
  }

  // On a telephone a picture of several diagrams is small: each opens alone, as large as one likes.
  for (const image of document.querySelectorAll("article img:not(.toggler)")) {
    if (image.closest("a")) continue;
    const link = document.createElement("a");
    link.href = image.src;
    link.title = "Open the picture alone";
    image.before(link);
    link.append(image);
  }
})();
