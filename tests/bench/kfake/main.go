// kfake, franz-go's stand-in for a cluster in tests, as a process: one broker at a port of loopback, until SIGINT.
package main

import (
	"flag"
	"os"
	"os/signal"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port := flag.Int("port", 9092, "of the broker")
	flag.Parse()
	cluster, err := kfake.NewCluster(kfake.Ports(*port), kfake.NumBrokers(1), kfake.AllowAutoTopicCreation())
	if err != nil {
		panic(err)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt)
	<-end
	cluster.Close()
}
