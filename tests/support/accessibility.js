// Returns what hinders people on the page, as a list of sentences: names of controls, contrast, headings, double ids.
(() => {
  const found = [];
  const name = (one) => (one.outerHTML || "").slice(0, 120);
  const shown = (one) => one.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  const named = (one) => (one.getAttribute("aria-label") || one.textContent || "").trim() || one.getAttribute("title")
    || [...(one.labels || [])].some((label) => label.textContent.trim())
    || [...one.querySelectorAll("img")].some((image) => image.alt);
  for (const one of document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']"))
    if (shown(one) && !named(one)) found.push(`no name: ${name(one)}`);
  for (const one of document.querySelectorAll("img:not([alt]), svg[role=img]:not([aria-label])")) found.push(`no text: ${name(one)}`);
  for (const one of document.querySelectorAll("table")) if (shown(one) && one.getAttribute("role") !== "presentation" && !one.querySelector("th")) found.push(`table without headers: ${name(one)}`);
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids)) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`double id: ${id}`);
  let level = 0;
  for (const one of document.querySelectorAll("h1, h2, h3, h4")) {
    const next = Number(one.tagName[1]);
    if (next > level + 1) found.push(`h${level} is followed by h${next}: ${name(one)}`);
    level = next;
  }
  if (document.querySelectorAll("h1").length !== 1) found.push("not one h1");
  if (!document.documentElement.lang) found.push("no language");

  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255).map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
  const lies_on = (one, shape) => {
    const [inner, outer] = [one.getBoundingClientRect(), shape.getBoundingClientRect()];
    const [x, y] = [inner.x + inner.width / 2, inner.y + inner.height / 2];
    return x > outer.left && x < outer.right && y > outer.top && y < outer.bottom;
  };
  const behind = (one) => {
    const shapes = [...(one.closest("svg")?.querySelectorAll("rect") ?? [])].filter((shape) => lies_on(one, shape));
    const opaque = shapes.map((shape) => getComputedStyle(shape)).filter((style) => /^rgb\(/.test(style.fill) && style.fillOpacity === "1");
    if (opaque.length) return parts(opaque.at(-1).fill);
    for (let at = one; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !shown(one) || one.closest(":disabled, .unseen, script, noscript, option")) continue;
    const style = getComputedStyle(one);
    const [front, back] = [light(parts(one.closest("svg") ? style.fill : style.color)), light(behind(one))];
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`contrast ${ratio.toFixed(2)}: ${walker.currentNode.data.trim().slice(0, 40)} in ${name(one)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push(`the page is ${document.documentElement.scrollWidth - innerWidth} px wider than the window`);
  return found;
})()
