// A Go service's first hour with franz-go: program BROKER TOPIC GROUP classic|consumer.
// It ends with 0 where everything was as expected; what was not stands on standard error.
// With a fifth word it is a member of the group instead, until it is killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 4
	each       = 5
	deadline   = 60 * time.Second
	look       = 50 * time.Millisecond
)

var broker, topic, group, protocol string

func check(err error, what string) {
	if err != nil {
		fmt.Fprintln(os.Stderr, what+":", err)
		os.Exit(1)
	}
}

func require(held bool, what string) {
	if !held {
		check(errors.New("it is not so"), what)
	}
}

func until(done func() bool, what string) {
	for end := time.Now().Add(deadline); !done(); time.Sleep(look) {
		require(time.Now().Before(end), what)
	}
}

func newMember() *kgo.Client {
	options := []kgo.Opt{kgo.SeedBrokers(broker), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(2 * time.Second), kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.RebalanceTimeout(5 * time.Second), kgo.FetchMaxWait(200 * time.Millisecond), kgo.DisableAutoCommit()}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(options...)
	check(err, "a client in a group")
	return client
}

func member() {
	client := newMember()
	for {
		check(client.PollFetches(context.Background()).Err(), "poll of the second member")
	}
}

func produce(limit context.Context, admin *kadm.Client) {
	created, err := admin.CreateTopic(limit, partitions, 1, nil, topic)
	check(err, "create topic")
	require(created.ID != kadm.TopicID{}, "a topic has an id")
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(),
		kgo.ZstdCompression()} {
		client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))
		check(err, "a client")
		for number := int32(0); number < partitions; number++ {
			sent := &kgo.Record{Partition: number, Key: []byte("key"), Value: make([]byte, 2000),
				Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte(fmt.Sprint(codec))}}}
			check(client.ProduceSync(limit, sent).FirstErr(), "produce")
		}
		client.Close()
	}
}

func take(limit context.Context, client *kgo.Client, count int) {
	seen := map[string]bool{}
	for len(seen) < count {
		fetches := client.PollFetches(limit)
		check(fetches.Err(), fmt.Sprint("poll after ", len(seen), " records"))
		fetches.EachRecord(func(record *kgo.Record) {
			place := fmt.Sprint(record.Partition, "-", record.Offset)
			require(!seen[place] && len(record.Value) == 2000 && record.Headers[0].Key == "codec", "each once, whole")
			seen[place] = true
		})
		check(client.CommitUncommittedOffsets(limit), "commit")
	}
}

// Partitions of each member of the group, while it is at rest.
func shares(limit context.Context, admin *kadm.Client) []int {
	var counts []int
	if protocol == "classic" {
		groups, err := admin.DescribeGroups(limit, group)
		check(err, "describe groups")
		if groups[group].State == "Stable" {
			for _, one := range groups[group].Members {
				assigned, _ := one.Assigned.AsConsumer()
				for _, of := range assigned.Topics {
					counts = append(counts, len(of.Partitions))
				}
			}
		}
		return counts
	}
	groups, err := admin.DescribeConsumerGroups(limit, group)
	check(err, "describe consumer groups")
	if groups[group].State == "Stable" {
		for _, one := range groups[group].Members {
			counts = append(counts, len(one.Assignment[topic]))
		}
	}
	return counts
}

func shareOut(limit context.Context, admin *kadm.Client) {
	first := newMember()
	take(limit, first, partitions*each)
	ended := make(chan struct{})
	polling, stop := context.WithCancel(limit)
	go func() { // a member goes on polling
		for polling.Err() == nil {
			first.PollFetches(polling)
		}
		close(ended)
	}()
	second := exec.Command(os.Args[0], broker, topic, group, protocol, "member")
	second.Stderr = os.Stderr
	check(second.Start(), "start the second member")
	until(func() bool { return fmt.Sprint(shares(limit, admin)) == "[2 2]" }, "halves")
	check(second.Process.Kill(), "kill")
	_ = second.Wait()
	until(func() bool { return fmt.Sprint(shares(limit, admin)) == "[4]" }, "everything again")
	moved, err := admin.CommitOffsets(limit, group, kadm.OffsetsFromRecords(kgo.Record{Topic: topic, Partition: 0, Offset: 0}))
	require(err != nil || moved.Error() != nil, "offsets of a live group stay")
	stop()
	<-ended
	first.Close()
	until(func() bool { return len(shares(limit, admin)) == 0 }, "nobody")
}

func offsets(limit context.Context, admin *kadm.Client) {
	lags, err := admin.Lag(limit, group)
	check(err, "lag")
	require(lags[group].Lag.Total() == 0 && len(lags[group].Lag[topic]) == partitions, "all were committed")
	var back kadm.Offsets
	back.AddOffset(topic, 0, 0, -1)
	back.AddOffset(topic, 1, 3, -1)
	check(admin.CommitAllOffsets(limit, group, back), "move the offsets")
	again := newMember()
	take(limit, again, each+each-3)
	again.Close()
}

func administer(limit context.Context, admin *kadm.Client) {
	ends, err := admin.ListEndOffsets(limit, topic)
	check(err, "end offsets")
	require(ends[topic][3].Offset == each, "an end")
	value := "3600000"
	altered, err := admin.AlterTopicConfigs(limit, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, topic)
	check(err, "alter configs")
	check(altered[0].Err, "alter a topic")
	described, err := admin.DescribeTopicConfigs(limit, topic)
	check(err, "describe configs")
	found := false
	for _, entry := range described[0].Configs {
		found = found || entry.Key == "retention.ms" && *entry.Value == value
	}
	require(found, "the new retention")
	more, err := admin.UpdatePartitions(limit, partitions+2, topic)
	check(err, "add partitions")
	check(more.Error(), "add partitions to the topic")
	listed, err := admin.ListTopics(limit, topic)
	check(err, "list topics")
	require(len(listed[topic].Partitions) == partitions+2, "six partitions")
	before := kadm.Offsets{}
	before.AddOffset(topic, 0, 2, -1)
	deleted, err := admin.DeleteRecords(limit, before)
	check(err, "delete records")
	check(deleted.Error(), "delete records of the topic")
	starts, err := admin.ListStartOffsets(limit, topic)
	check(err, "start offsets")
	require(starts[topic][0].Offset == 2, "a later start")
	_, err = admin.DescribeAllLogDirs(limit, nil)
	check(err, "log dirs")
	_, err = admin.BrokerMetadata(limit)
	check(err, "brokers")
	until(func() bool {
		gone, err := admin.DeleteGroups(limit, group)
		check(err, "delete groups")
		return gone.Error() == nil
	}, "the group is deleted")
	ended, err := admin.DeleteTopics(limit, topic)
	check(err, "delete topics")
	check(ended.Error(), "delete the topic")
}

func main() {
	broker, topic, group, protocol = os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	if len(os.Args) > 5 {
		member()
	}
	limit, end := context.WithTimeout(context.Background(), 2*deadline)
	defer end()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	check(err, "a client")
	admin := kadm.NewClient(client)
	produce(limit, admin)
	shareOut(limit, admin)
	offsets(limit, admin)
	administer(limit, admin)
}
