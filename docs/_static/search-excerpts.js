// Excerpts of search results from `search-texts.js`, which a page opened from a file can load; it cannot fetch pages.
(() => {
  const results = document.getElementById("search-results");
  const query = new URLSearchParams(location.search).get("q") || "";
  const words = query.toLowerCase().split(/[^\p{Letter}\p{Number}_]+/u).filter(Boolean);
  const sectionOf = (link) => {
    const [file, anchor] = link.getAttribute("href").split("#");
    const sections = SEARCH_TEXTS[file.replace(/\.html$/, "")] || {};
    return (anchor && sections[anchor]) || Object.values(sections).join(" ");
  };
  const excerpt = (text) => {
    const lower = text.toLowerCase();
    const found = words.map((word) => lower.indexOf(word)).filter((at) => at >= 0);
    const start = found.length ? Math.max(0, Math.min(...found) - 80) : 0;
    const begin = start ? text.indexOf(" ", start) + 1 : 0;
    const rest = text.slice(begin, begin + 260);
    return (begin ? "… " : "") + rest.slice(0, rest.length < 260 ? 260 : rest.lastIndexOf(" ")) + (rest.length < 260 ? "" : " …");
  };
  const marked = (text) => {
    const paragraph = document.createElement("p");
    paragraph.className = "context";
    const pattern = words.length
      ? new RegExp(`(${words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "i")
      : null;
    (pattern ? text.split(pattern) : [text]).forEach((part, number) => {
      if (number % 2) {
        const mark = document.createElement("span");
        mark.className = "highlighted";
        mark.textContent = part;
        paragraph.append(mark);
      } else paragraph.append(part);
    });
    return paragraph;
  };
  new MutationObserver(() =>
    results.querySelectorAll("ul.search > li:not(.explained)").forEach((item) => {
      item.classList.add("explained");
      const text = sectionOf(item.querySelector("a"));
      if (text && !item.classList.contains("kind-index")) item.append(marked(excerpt(text)));
    }),
  ).observe(results, { childList: true, subtree: true });
})();
