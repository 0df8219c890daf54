// The script for other pages: <script src="https://…/chat/widget.js" async></script>. A classic script, because only such a script knows its
// own element, and with it the address of the server and the attributes.
(() => {
  const script = document.currentScript;
  const { title, sender, token } = script.dataset;
  const server = new URL(script.src).origin;
  const start = ({ mount }) => mount({ server, title, sender, token });
  import(new URL('launcher.js', script.src).href).then(start).catch((error) => {
    console.warn(`Segue: the chat of ${server} cannot be loaded. Is ${location.origin} listed in allowed_origins there?`, error);
  });
})();
