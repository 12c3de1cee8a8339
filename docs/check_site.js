// What docs/check_site.py asks of a page in the browser: a list of what is wrong with what is shown.
() => {
  const problems = new Set();
  const root = document.documentElement;
  const describe = (element) => {
    const name = element.className && typeof element.className === "string" ? `.${element.className.trim().split(/\s+/)[0]}` : "";
    const text = element.textContent.trim().replace(/\s+/g, " ").slice(0, 40);
    return `<${element.tagName.toLowerCase()}${name}> ${JSON.stringify(text)}`;
  };

  // The page itself does not scroll sideways.
  if (root.scrollWidth > root.clientWidth) {
    problems.add(`the page scrolls sideways, by ${root.scrollWidth - root.clientWidth} pixels`);
  }
  // What is in a cell stays in it: it would lie over the next one.
  for (const cell of document.querySelectorAll("article td, article th")) {
    if (cell.scrollWidth > cell.clientWidth + 2) problems.add(`a cell is too narrow: ${describe(cell)}`);
  }
  // Nor is it squeezed, a few letters on each line.
  for (const name of document.querySelectorAll("article :is(td, th) code")) {
    const lines = new Set([...name.getClientRects()].map((box) => Math.round(box.top))).size;
    if (lines > 2 && !/[\s,.(]/.test(name.textContent)) problems.add(`a name is broken into ${lines} pieces: ${describe(name)}`);
  }

  // Contrast of text, by WCAG 2.2 AA.
  const parse = (color) => {
    const numbers = (color.match(/-?[\d.]+(e-?\d+)?/g) ?? []).map(Number);
    if (color.startsWith("color(srgb")) return [...numbers.slice(0, 3).map((x) => 255 * x), numbers[3] ?? 1];
    return [...numbers.slice(0, 3), numbers[3] ?? 1];
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const backgrounds = new Map();
  const background = (element) => {
    if (element === null) return [255, 255, 255, 1];
    if (!backgrounds.has(element)) {
      const color = parse(getComputedStyle(element).backgroundColor);
      backgrounds.set(element, color[3] === 1 ? color : over(color, background(element.parentElement)));
    }
    return backgrounds.get(element);
  };
  const luminance = (color) => {
    const [r, g, b] = color.slice(0, 3).map((x) => x / 255).map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const judge = (element, style, what) => {
    const behind = background(element);
    const color = over(parse(style.color), behind);
    const [high, low] = [luminance(color), luminance(behind)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) {
      const colors = [color, behind].map((c) => `rgb(${c.slice(0, 3).map(Math.round)})`).join(" on ");
      problems.add(`contrast ${ratio.toFixed(2)}, ${colors}: ${what}`);
    }
  };
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (seen.has(element) || !walker.currentNode.nodeValue.trim() || element.closest("script, style, noscript, template, option")) continue;
    seen.add(element);
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    judge(element, getComputedStyle(element), describe(element));
  }
  for (const field of document.querySelectorAll("input[placeholder]")) {
    if (field.checkVisibility()) judge(field, getComputedStyle(field, "::placeholder"), `the placeholder ${field.placeholder}`);
  }

  // Pictures are there, say what they show, and lie on what they were drawn for.
  const dark = luminance(background(document.body)) < 0.2;
  for (const image of document.querySelectorAll("article img:not(.toggler)")) {
    if (!image.checkVisibility()) continue;
    const name = image.src.split("/").pop().slice(0, 60);
    if (image.complete && !image.naturalWidth) problems.add(`a picture is broken: ${name}`);
    if (!image.alt || image.alt === image.getAttribute("src")) problems.add(`a picture has no description: ${name}`);
    if (dark && luminance(background(image)) < 0.5) problems.add(`a picture drawn for white paper lies on black: ${name}`);
  }
  // What scrolls in itself can be scrolled by keyboard.
  for (const box of document.querySelectorAll(".table-wrapper")) {
    if (box.scrollWidth > box.clientWidth + 1 && box.tabIndex < 0) problems.add(`a table cannot be scrolled by keyboard: ${describe(box)}`);
  }
  return [...problems];
}
