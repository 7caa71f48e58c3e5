// The console's own script: signing in, live parts, and the one place where
// text becomes markup.
'use strict';
(() => {
  // htmx puts what the daemon answers into the page. Templates escape all text
  // in it, so every "<" begins a tag of theirs. Anything but these tags with
  // these attributes is refused, whatever a name in it says.
  const tags = 'a|bdi|button|caption|code|dd|del|details|div|dl|dt|form|h2|h3|input|ins|label|li|ol|option|p|pre|rect|section|select|span|strong|summary|svg|table|tbody|td|template|textarea|th|thead|time|tr|ul';
  const attributes = 'action|aria-[a-z]+|checked|class|colspan|data-hx-[a-z]+|data-passkey|datetime|disabled|height|href|id|method|name|open|preserveaspectratio|rel|role|rows|scope|selected|tabindex|type|value|viewbox|width|x|y';
  const tag = new RegExp('</?(?:' + tags + ')(?:\\s+(?:' + attributes + ')(?:="[^"<>]*")?)*\\s*/?>', 'gi');
  const address = /\s(?:href|action|data-hx-[a-z]+)="(?!\/ui\/|#|live from:body"|innerHTML")/i;
  let swapped = -Infinity; // time of the last update
  const checked = (text) => {
    if (/[<]/.test(text.replace(tag, '')) || (text.match(tag) || []).some((t) => address.test(t))) {
      throw new TypeError('markup that is not the console\'s');
    }
    swapped = performance.now();
    return text;
  };
  const rules = { createHTML: checked, createScript: () => '' };
  const policy = window.trustedTypes ? trustedTypes.createPolicy('doorward', rules) : rules;
  htmx.registerExtension('doorward', { init: (api) => api.initSecurity(policy) });

  // Signing in: the code stands behind the # of the address, which no server
  // and no log sees, and leaves the address before it is used.
  const say = (text) => {
    const p = document.getElementById('signin');
    if (p) p.textContent = text; else location.reload();
  };
  const signIn = async (code) => {
    history.replaceState(null, '', '/ui/');
    const answer = await fetch('/ui/session', { method: 'POST', body: new URLSearchParams({ code }), redirect: 'manual' });
    if (answer.type === 'opaqueredirect' || answer.ok) {
      location.replace('/ui/');
      return;
    }
    say(answer.status === 403 ? await answer.text() : 'This code is not valid: run doorward ui again.');
  };
  const enter = () => {
    const code = location.hash.slice(1);
    if (location.pathname === '/ui/' && /^[A-Z2-7]{20,}$/.test(code)) {
      signIn(code).catch(() => say('The daemon does not answer.'));
    }
  };
  enter();
  window.addEventListener('hashchange', enter);

  // Live parts: the daemon says that there is something new, and the page asks
  // for it, unless a person is at work in that part: the focus is in it, a text is
  // selected, or a field has been changed. A click on a table is no work in it.
  const changed = (field) => field.tagName === 'SELECT'
    ? field.selectedIndex !== Math.max(0, [...field.options].findIndex((o) => o.defaultSelected))
    : field.value !== field.defaultValue || field.checked !== field.defaultChecked;
  const busy = () => {
    const live = document.getElementById('live');
    const at = document.activeElement;
    return document.hidden || !live || (live.contains(at) && !at.matches('.scroll:not(:focus-visible)')) ||
      [...live.querySelectorAll('input, select, textarea')].some(changed) ||
      (getSelection() && !getSelection().isCollapsed);
  };
  let late = false;
  // What a button does, and to what: buttons of several rows may have the same text.
  const aim = (b) => JSON.stringify([[b.form && b.form.getAttribute('action'), b.name, b.value],
    ...[...(b.form ? b.form.querySelectorAll('[type=hidden]') : [])].map((f) => [f.name, f.value])]);
  const heights = () => new Map([...document.querySelectorAll('#live button')].map((b) => [aim(b), b.getBoundingClientRect().top + scrollY]));
  let before = new Map(); // the heights of the buttons before the last update
  const refresh = () => {
    late = busy();
    if (late) return;
    before = heights();
    document.body.dispatchEvent(new Event('live'));
  };
  // A click that comes right after an update was meant for what was there before it.
  const moved = (button) => button && button.closest('#live') && performance.now() - swapped < 700 &&
    before.get(aim(button)) !== heights().get(aim(button));
  // A browser has few connections to one address: a page that nobody sees gives
  // its own back.
  let source = null;
  // A stream that is refused for good is that of a session which is over, or one
  // too many.
  const refused = async () => {
    if (source && source.readyState === EventSource.CLOSED) {
      const answer = await fetch('/ui/live', { method: 'HEAD' });
      if (answer.status === 401) location.reload();
    }
  };
  const listen = () => {
    if (document.hidden) {
      if (source) source.close();
      source = null;
    } else if (!source) {
      source = new EventSource('/ui/live?after=' + document.body.dataset.live);
      source.addEventListener('changed', refresh);
      source.addEventListener('over', () => { source.close(); location.reload(); });
      source.addEventListener('error', refused);
    }
  };
  // Passkeys: a form that needs one is sent with the answer of the authenticator, which
  // signs what the daemon asks for this very form.
  const post = async (path, fields) => {
    const answer = await fetch('/ui/passkeys/' + path, { method: 'POST', body: new URLSearchParams(fields) });
    if (!answer.ok) throw new Error(answer.status === 409 ? 'no passkey is registered, or the call has changed' : 'the daemon refused it');
    return answer.json();
  };
  const ask = (step) => step.kind === 'get'
    ? navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(step.options) })
    : navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(step.options) });
  const sign = async (form) => {
    const fields = Object.fromEntries(new FormData(form));
    let step = await post('begin', { ...fields, what: form.dataset.passkey });
    let answer = JSON.stringify(await ask(step));
    if (form.dataset.passkey === 'add' && step.kind === 'get') {
      step = await post('allow', { ...fields, ceremony: step.ceremony, answer });
      answer = JSON.stringify(await ask(step));
    }
    const send = document.createElement('form');
    send.method = 'post';
    send.action = form.action;
    for (const [name, value] of Object.entries({ ...fields, ceremony: step.ceremony, answer })) {
      const field = document.createElement('input');
      Object.assign(field, { type: 'hidden', name, value });
      send.append(field);
    }
    document.body.append(send);
    send.submit();
  };
  document.addEventListener('submit', (event) => {
    if (moved(event.submitter)) {
      event.preventDefault();
      document.getElementById('passkey').textContent = 'Not done: the page has changed just now. Look at it again.';
      return;
    }
    if (!event.target.dataset.passkey) return;
    event.preventDefault();
    sign(event.target).catch((err) => {
      document.getElementById('passkey').textContent = 'Not done: ' + (err && err.message || 'no answer');
    });
  });

  if (document.body.dataset.live) {
    listen();
    document.addEventListener('visibilitychange', () => { listen(); if (!document.hidden) refresh(); });
    setInterval(() => { if (late) refresh(); }, 2000);
    window.addEventListener('pagehide', () => { if (source) source.close(); });
  }
})();
