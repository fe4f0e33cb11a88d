/*
 * Copyright 2026 The hf_memaug authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The search runs in a worker, and browsers start none for a page that was opened as a file. There, it runs in a hidden
 * frame of the page instead.
 */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.inside = frame.contentWindow
      // What the script inside calls to answer, and to load others.
      this.inside.postMessage = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      this.inside.importScripts = (...urls) => urls.reduce(
        (before, next) => before.then(() => this.load(next)), Promise.resolve()
      )
      this.load(url).then(() => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach(data => this.postMessage(data))
      })
    }
    load(url) {
      return new Promise((done, failed) => {
        const script = this.inside.document.createElement("script")
        script.src = url
        script.onload = done
        script.onerror = failed
        this.inside.document.body.appendChild(script)
      })
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }))
    }
    terminate() {
      this.inside.frameElement.remove()
    }
  }
}
