// esbuild gives an .mjs file the whole module as the default import of a CommonJS one.
export { Scrollbars as default } from "./node_modules/react-custom-scrollbars-2/lib/index.js";
