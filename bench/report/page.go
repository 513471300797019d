package report

import "html/template"

// NewPage returns the template of a page that needs no other file. body is a template too; it may
// use the template "table" with a Table, and "machine" with the rows of a bench.Machine.
func NewPage(title, body string) *template.Template {
	page := template.Must(template.New("page").Parse(shell))
	template.Must(page.New("title").Parse(template.HTMLEscapeString(title)))
	template.Must(page.New("body").Parse(body))
	return page
}

const shell = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{{template "title"}}</title>
<style>
:root { color-scheme: light dark; --ours: #0b6bcb; --other: #c4511a; --line: #8884; }
@media (prefers-color-scheme: dark) { :root { --ours: #5aa9ff; --other: #ff9a5c; } }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 84rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.figure { font-size: 1.1rem; border-left: .25rem solid var(--ours); padding-left: .8rem; }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: pre; }
th:first-child, td:first-child { text-align: left; }
.facts td { text-align: left; white-space: normal; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); gap: 1rem; }
figure { margin: 0; overflow-x: auto; } .wide svg { min-width: 44rem; }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
.grid { stroke: var(--line); }
.ours { fill: var(--ours); fill-opacity: .35; stroke: var(--ours); } .other { fill: none; stroke: var(--other); stroke-width: 1.5; }
.of-ours { fill: var(--ours); } .of-other { fill: var(--other); }
.bar { fill: var(--ours); fill-opacity: .55; } .first { fill: var(--other); fill-opacity: .55; } .interval { stroke: currentColor; stroke-width: 1.4; }
</style>
</head>
<body>
{{template "body" .}}</body>
</html>
{{define "table"}}<div class="scroll"><table><tr>{{range .Columns}}<th>{{.}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table></div>
{{end}}{{define "machine"}}<h2>Machine</h2>
<table class="facts">{{range .}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
{{end}}`
