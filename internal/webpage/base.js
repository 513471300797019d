const retryEvery = 2000, statusLimit = 2000;  // ms
const byId = id => document.getElementById(id);
const rest = ms => new Promise(done => setTimeout(done, ms));
// A hidden page sends no requests.
const seen = async () => { while (document.hidden) await new Promise(done => document.addEventListener("visibilitychange", done, {once: true})); };
const ms = v => v == null ? "–" : v >= 10000 ? (v / 1000).toFixed(0) + " s" : v.toFixed(v < 10 ? 1 : 0) + " ms";
const ask = (path, limit) => fetch(path, {cache: "no-store", signal: AbortSignal.timeout(limit)});

// Foreign text is only set as text, never as HTML.
function fill(table, rows) {
  while (table.rows.length > rows.length) table.deleteRow(-1);
  rows.forEach((row, i) => {
    const tr = table.rows[i] || table.insertRow();
    while (tr.cells.length > row.length) tr.deleteCell(-1);
    row.forEach((cell, k) => {
      const td = tr.cells[k] || tr.insertCell(), [text, look] = Array.isArray(cell) ? cell : [cell, ""];
      if (td.textContent !== String(text)) td.textContent = text;
      if (td.className !== look) td.className = look;
    });
  });
}
const alarm = n => [n, n > 0 ? "bad" : ""];

// watch requests the status periodically and shows it, or that no answer came.
async function watch(path, every, show, name) {
  for (;;) {
    await seen();
    let wait = every;
    try {
      const r = await ask(path(), statusLimit);
      if (!r.ok) throw new Error(await r.text());
      show(await r.json());
      document.body.classList.remove("old");
    } catch (e) {
      byId("state").textContent = e instanceof TypeError || e.name === "TimeoutError" ? "no answer" : e.message;  // fetch throws TypeErrors
      byId("state").className = "bad";
      document.title = `${name()}: no answer`;
      document.body.classList.add("old");  // the tables show the last answer
      wait = retryEvery;
    }
    await rest(wait);
  }
}
