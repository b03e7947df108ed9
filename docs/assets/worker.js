// Search in files: from file:// a browser starts no worker, so there the script of the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
      const script = inner.document.createElement("script");
      script.src = new URL(address, location.href);
      script.onload = () => {
        this.send = (data) => setTimeout(() => inner.onmessage({ data }));
        this.waiting.forEach(this.send);
      };
      script.onerror = (error) => this.onerror?.(error);
      inner.document.body.append(script);
    }
    postMessage(data) {
      this.send ? this.send(data) : this.waiting.push(data);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
