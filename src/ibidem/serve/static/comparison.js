// What two texts have in common.

const LONGEST = 600; // words; comparing takes the product of both lengths

// The numbers of the words of `a` that are in a longest common subsequence with `b`.
export function common(a, b) {
  if (a.length > LONGEST || b.length > LONGEST) return new Set(a.keys());
  const best = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    }
  }
  const same = new Set();
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) { same.add(i); i += 1; j += 1; }
    else if (best[i + 1][j] >= best[i][j + 1]) i += 1;
    else j += 1;
  }
  return same;
}
