package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"
)

var bootstrap = os.Getenv("BARNABAS_BOOTSTRAP")

// ask puts a question to a barnabas broker; answer, unless it is nil, is filled with what it says.
func ask(t *testing.T, path string, said, answer any) {
	t.Helper()
	body, _ := json.Marshal(said)
	request, _ := http.NewRequest("POST", os.Getenv("BARNABAS_URL")+"/"+path, bytes.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+os.Getenv("BARNABAS_TOKEN"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var told struct {
		Answer json.RawMessage
		Error  string
	}
	if err := json.NewDecoder(response.Body).Decode(&told); err != nil || told.Error != "" {
		t.Fatal(path, err, told.Error)
	}
	if answer != nil {
		if err := json.Unmarshal(told.Answer, answer); err != nil {
			t.Fatal(err)
		}
	}
}

type fault struct {
	t      *testing.T
	number int
}

type state struct{ Seen, Fired, Standing int }

// arm has something go wrong until the end of the test, which fails if it never did.
func arm(t *testing.T, said map[string]any) fault {
	armed := fault{t: t}
	ask(t, "arm_fault", map[string]any{"fault": said}, &armed.number)
	t.Cleanup(func() {
		if armed.ask("disarm_fault").Fired == 0 {
			t.Error("it has never fired:", said)
		}
	})
	return armed
}

func (f fault) ask(path string) (found state) {
	ask(f.t, path, map[string]any{"number": f.number}, &found)
	return
}

// reached waits until the fault holds somebody.
func (f fault) reached() {
	for f.ask("fault").Standing == 0 {
		time.Sleep(5 * time.Millisecond)
	}
}

func (f fault) release() {
	ask(f.t, "release_fault", map[string]any{"number": f.number}, nil)
}

func empty(t *testing.T, topic string, partitions int) {
	ask(t, "reset", nil, nil)
	ask(t, "create_topics", map[string]any{"topics": map[string]int{topic: partitions}}, nil)
}

func (s state) String() string {
	return fmt.Sprintf("seen %d, fired %d, standing %d", s.Seen, s.Fired, s.Standing)
}
