// Asks a barnabas broker for faults, time and what it holds.
const { BARNABAS_URL, BARNABAS_TOKEN = '' } = process.env;

export async function ask(path, said = {}) {
  const headers = { Authorization: `Bearer ${BARNABAS_TOKEN}` };
  const response = await fetch(`${BARNABAS_URL}/${path}`, { method: 'POST', headers, body: JSON.stringify(said) });
  const { answer, error } = await response.json();
  if (error) throw new Error(error);
  return answer;
}

export async function arm(fault) {
  const number = await ask('arm_fault', { fault });
  return {
    state: () => ask('fault', { number }),
    release: () => ask('release_fault', { number }),
    disarm: () => ask('disarm_fault', { number }),
    async reached() {
      while (!(await this.state()).standing) await new Promise((resolve) => setTimeout(resolve, 5));
    },
  };
}
