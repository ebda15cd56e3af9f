package control

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestALostAnswerToACommitIsAskedForAgain(t *testing.T) {
	empty(t, "payments", 2)
	arm(t, map[string]any{"api": "EndTxn", "do": "close", "at": "answer"})
	payer := pays(t)
	if err := payer.EndTransaction(context.Background(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if found := paid(t, 2); !slices.Equal(found, []string{"ten", "twenty"}) {
		t.Fatal(found)
	}
}

func TestAProducerThatIsFencedAmidItsCommitPaysNothing(t *testing.T) {
	empty(t, "payments", 2)
	fault := arm(t, map[string]any{"api": "EndTxn", "do": "hold", "fields": map[string]any{"committed": true}})
	payer := pays(t)
	ended := make(chan error)
	go func() { ended <- payer.EndTransaction(context.Background(), kgo.TryCommit) }()
	fault.reached()
	other := newPayer(t) // takes over: what was open is aborted
	if _, _, err := other.ProducerID(context.Background()); err != nil {
		t.Fatal(err)
	}
	fault.release()
	err := <-ended
	if !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Fatal(err)
	}
	if found := paid(t, 0); len(found) > 0 {
		t.Fatal(found)
	}
}

func TestReadersWaitBetweenTwoMarkers(t *testing.T) {
	empty(t, "payments", 2)
	fault := arm(t, map[string]any{"do": "hold", "at": "marker", "nth": 2})
	payer := pays(t)
	if err := payer.EndTransaction(context.Background(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	fault.reached()
	if found := paid(t, 1); len(found) != 1 {
		t.Fatal(found)
	}
	fault.release()
	paid(t, 2)
}

func newPayer(t *testing.T) *kgo.Client {
	payer, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID("payer"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(payer.Close)
	return payer
}

func pays(t *testing.T) *kgo.Client {
	payer := newPayer(t)
	if err := payer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	records := []*kgo.Record{
		{Topic: "payments", Partition: 0, Value: []byte("ten")},
		{Topic: "payments", Partition: 1, Value: []byte("twenty")},
	}
	if err := payer.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return payer
}

// paid is what a reader of committed payments sees, once there are so many, or for a moment where there are to be none.
func paid(t *testing.T, wanted int) (found []string) {
	reader, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics("payments"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(50*time.Millisecond),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	patience := 10 * time.Second
	if wanted == 0 {
		patience = 300 * time.Millisecond
	}
	until, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for until.Err() == nil && (wanted == 0 || len(found) < wanted) {
		reader.PollFetches(until).EachRecord(func(record *kgo.Record) { found = append(found, string(record.Value)) })
	}
	slices.Sort(found)
	return
}
