// The page that hinge report writes, as a file.
import { $, alertIn, make } from './dom.js';

export async function download(parameters) {
  const button = $('save-report');
  button.textContent = 'Making it …';
  try {
    const response = await fetch(`/api/report?${new URLSearchParams(parameters)}`);
    if (!response.ok) throw new Error((await response.json()).error);
    const reader = new FileReader();
    const data = await new Promise((resolve, reject) => {
      response.blob().then((blob) => {
        reader.onload = () => resolve(reader.result);
        reader.onerror = reject;
        reader.readAsDataURL(blob);
      });
    });
    const link = make('a', { href: data, download: 'report.html' });
    (document.body.append(link), link.click(), link.remove());
  } catch (error) {
    alertIn($('runs-title').closest('section'), error.message);
  }
  button.textContent = 'Save report';
}
