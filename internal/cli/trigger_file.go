package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// maxTriggerLine bounds a line of a file of runs: parameters have at most a part of it.
const maxTriggerLine = 1 << 20

// maxTriggerFile bounds a file of runs.
const maxTriggerFile = 256 << 20

// maxShownRefusals is how many refused lines are shown to people.
const maxShownRefusals = 20

// runsOfFile reads a file of runs: one JSON object per line, with the fields of a trigger.
func runsOfFile(r io.Reader, name string) ([]*servov1.RunTrigger, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxTriggerLine)
	var runs []*servov1.RunTrigger
	at := 0
	for lines.Scan() {
		at++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		item := &servov1.RunTrigger{}
		if err := protojson.Unmarshal(line, item); err != nil {
			return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("%s:%d: %s", name, at, protoJSONError(err)), fault.Field("file"),
				fault.Remedy(`write one JSON object per line, such as {"pipeline": "daily", "parameters": {"day": "2026-01-31"}}`))
		}
		runs = append(runs, item)
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("%s:%d: line has more than 1 MiB", name, at+1), fault.Field("file"), fault.Remedy("pass large data by reference"))
		}
		return nil, err
	}
	if len(runs) == 0 {
		return nil, fault.New(fault.InvalidArgument, name+" has no runs", fault.Field("file"), fault.Remedy("write one JSON object per line"))
	}
	return runs, nil
}

// protoJSONError is the message of a parse error without the library's prefix.
func protoJSONError(err error) string {
	text := strings.Map(func(r rune) rune {
		if r == '\u00a0' {
			return ' '
		}
		return r
	}, err.Error())
	return strings.TrimPrefix(strings.TrimPrefix(text, "proto: "), "(line 1:1): ")
}

// triggerFile creates the runs of a file, a thousand in a call, and shows what became of them. With a
// key, each run without its own has one that ends with its place in the file.
func (s *session) triggerFile(ctx context.Context, f triggerFlags, name string) error {
	data, err := readInput(s.cmd, "file", name, maxTriggerFile) //nolint:contextcheck // the command has the same context
	if err != nil {
		return err
	}
	runs, err := runsOfFile(bytes.NewReader(data), name)
	if err != nil {
		return err
	}
	for i, item := range runs {
		if item.GetIdempotencyKey() == "" && f.key != "" {
			item.IdempotencyKey = fmt.Sprintf("%s/%d", f.key, i)
		}
		item.WaitForQuota = item.GetWaitForQuota() || f.queue
		item.Queue = item.GetQueue() || f.queue
		if item.GetNote() == "" {
			item.Note = f.note
		}
	}
	all := &servov1.TriggerRunsResponse{}
	for len(all.GetRuns()) < len(runs) {
		done := len(all.GetRuns())
		next := runs[done:min(done+client.MaxTriggers, len(runs))]
		err := s.withinRate(ctx, func() error {
			answer, err := s.client.Runs().TriggerRuns(ctx, &servov1.TriggerRunsRequest{Tenant: s.Tenant, Workspace: s.Workspace, Runs: next})
			all.Runs = append(all.Runs, answer.GetRuns()...)
			return err
		})
		if err != nil {
			if done > 0 {
				s.report("%s of %d created before the error", count(done, "run"), len(runs))
			}
			return err
		}
	}
	return s.triggeredMany(all)
}

// triggeredMany shows the answers to many triggers, and fails if one was refused.
func (s *session) triggeredMany(all *servov1.TriggerRunsResponse) error {
	var created, repeated, running int
	var refused []int
	for i, r := range all.GetRuns() {
		switch {
		case r.GetError() != nil:
			refused = append(refused, i)
		case r.GetRepeatedRequest():
			repeated++
		case r.GetAlreadyRunning():
			running++
		default:
			created++
		}
	}
	err := s.show(all, func(w io.Writer) {
		fmt.Fprintf(w, "%s created, %d repeated, %d already running, %d refused\n", count(created, "run"), repeated, running, len(refused))
		for _, i := range refused[:min(len(refused), maxShownRefusals)] {
			e := all.GetRuns()[i].GetError()
			fmt.Fprintf(w, "run %d: %s\n", i+1, clean(e.GetMessage()))
		}
		if more := len(refused) - maxShownRefusals; more > 0 {
			fmt.Fprintf(w, "and %d more\n", more)
		}
	})
	if err != nil || len(refused) == 0 {
		return err
	}
	return fault.New(fault.Conflict, fmt.Sprintf("%d of %d runs were refused", len(refused), len(all.GetRuns())), fault.Remedy("correct them and repeat the command with the same keys"))
}
