// Opens the status page in a browser and prints its state as JSON: node page.cjs URL [option...]
//
// Fails with the complaints of axe-core and html-validate, with errors of its script, and with requests to other hosts.
//   width=N height=N   size of the window
//   dark, forced       preferences of the reader's system
//   noscript           scripts are off
//   wait=MS            waits this long
//   stop=PID           stops that process once the page is there, and waits until the page says that it is stale
//   type=TEXT          types into the filter
//   press=KEY,KEY      presses keys with the focus on the first plot
//   hover=SELECTOR     points at that element
//   click=SELECTOR     clicks that element, and waits a moment; several with " | " between them
//   picture=FILE       writes a screenshot
"use strict";
const { readFileSync } = require("fs"), puppeteer = require("puppeteer-core"), { HtmlValidate } = require("html-validate"), axe = require.resolve("axe-core");

const [url, ...words] = process.argv.slice(2);
const options = Object.fromEntries(words.map(word => [word.split("=")[0], word.slice(word.indexOf("=") + 1)]));
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

// Rules of style are off, which a program's output need not obey, and so is the one against pages that refresh
// themselves: without scripts, this page refreshes itself on purpose.
const RULES = {
  extends: ["html-validate:recommended", "html-validate:a11y"],
  rules: { "require-sri": "off", "no-inline-style": "off", "long-title": "off", "attr-quotes": "off", "no-trailing-whitespace": "off", "prefer-native-element": "off", "attribute-empty-style": "off", "attribute-boolean-style": "off", "meta-refresh": "off" },
};

async function validate(markup, what) {
  const { results } = await new HtmlValidate(RULES).validateString(markup);
  return results.flatMap(result => result.messages).map(it => `${what}: ${it.ruleId}: ${it.message} (${it.line}:${it.column}) ${markup.split("\n")[it.line - 1]?.slice(Math.max(it.column - 40, 0), it.column + 60)}`);
}

async function main() {
  const browser = await puppeteer.launch({ executablePath: process.env.BROWSER, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"] });
  const page = await browser.newPage(), complaints = [], here = new URL(url).origin;
  page.on("pageerror", error => complaints.push("script: " + error.message));
  page.on("console", message => { if (message.type() === "error" && !options.stop) complaints.push("console: " + message.text()); });
  page.on("request", request => { if (!request.url().startsWith(here) && !request.url().startsWith("data:")) complaints.push("elsewhere: " + request.url()); });
  await page.setViewport({ width: Number(options.width || 1400), height: Number(options.height || 1300) });
  const features = [];
  if ("dark" in options) features.push({ name: "prefers-color-scheme", value: "dark" });
  await page.emulateMediaFeatures(features);
  if ("forced" in options) await (await page.createCDPSession()).send("Emulation.setEmulatedMedia", { features: [{ name: "forced-colors", value: "active" }] });
  if ("noscript" in options) await page.setJavaScriptEnabled(false);
  const response = await page.goto(url, { waitUntil: "load" });
  complaints.push(...await validate(await response.text(), "source"));
  await sleep(Number(options.wait || 300));
  if (options.click) {
    for (const selector of options.click.split(" | ")) {
      await page.click(selector);
      await sleep(500);
    }
  }
  if (options.type) await page.type("#filter", options.type);
  if (options.press) {
    await page.evaluate(() => document.querySelector(".card svg").focus());
    for (const key of options.press.split(",")) await page.keyboard.press(key);
  }
  if (options.hover) await page.hover(options.hover);
  if (options.stop) {
    process.kill(Number(options.stop), "SIGSTOP");
    await page.waitForSelector(".stale", { timeout: 20000 });
  }
  await sleep(200);
  let state = {};
  if (!("noscript" in options)) {
    complaints.push(...await validate("<!DOCTYPE html>\n" + await page.evaluate(() => document.documentElement.outerHTML), "document"));
    if (!options.stop) {
      // The page's content security policy does not apply to the debugger.
      await page.evaluate(readFileSync(axe, "utf8"));
      const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      complaints.push(...violations.flatMap(it => it.nodes.slice(0, 3).map(node => `axe: ${it.id}: ${it.help}: ${node.html.slice(0, 160)} ${node.any.map(any => any.message).join("; ").slice(0, 200)}`)));
    }
    state = await page.evaluate(() => ({
      title: document.title,
      alarm: [...document.querySelectorAll("#state .level:not(.ok)")].map(line => line.textContent).join("; "),
      health: document.querySelector("#health-text").textContent,
      cards: [...document.querySelectorAll(".card")].map(card => [card.querySelector("h2").textContent, card.querySelector(".sub").textContent, card.className]),
      tables: Object.fromEntries([...document.querySelectorAll("#tables section")].map(it => [it.querySelector("table").id, [...it.querySelectorAll("tbody tr")].map(row => row.cells[0].textContent)])),
      frozen: [...document.querySelectorAll(".frozen table")].map(it => it.id),
      off: document.querySelector("#off").hidden ? "" : document.querySelector("#off").textContent,
      tooWide: [...document.querySelectorAll("#tables .scroll, #past-section .scroll")].filter(it => it.scrollWidth > it.clientWidth && !it.querySelector(".matrix")).map(it => it.querySelector("table").id),
      jumps: [...document.querySelectorAll("#jump a")].map(link => link.hash + " " + link.textContent),
      acts: [...document.querySelectorAll("p.all")].map(bar => bar.textContent).join("; "),
      marks: [...document.querySelectorAll(".card .mark")].map(mark => mark.textContent),
      red: document.querySelectorAll("td.red").length,
      isWide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
    }));
    if (state.tooWide.length) complaints.push("tables scroll sideways: " + state.tooWide);
    if (state.isWide) complaints.push("the page is wider than the window");
  }
  if (options.picture) await page.screenshot({ path: options.picture });
  await browser.close();
  console.log(JSON.stringify(state));
  for (const complaint of complaints) console.error(complaint);
  process.exitCode = complaints.length ? 1 : 0;
}

main().catch(error => {
  console.error(error);
  process.exit(2);
});
