// The page of the server: one chat that fills the window.
import './chat.js';

document.querySelector('segue-chat').addEventListener('segue-title', (event) => { document.title = event.detail; });
