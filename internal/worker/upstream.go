package worker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/run"
)

// Upstream is the result of an upstream task.
type Upstream struct {
	Run       string          `json:"run"` // that executed it: the task's own or another one
	Task      string          `json:"task"`
	Asset     string          `json:"asset"`
	Partition string          `json:"partition"`
	Result    json.RawMessage `json:"result"`
}

// Upstream returns the result of an upstream asset, from this run or from the run that executed it
// instead. If the asset has several partitions, it is that of the task's own partition.
func (t *Task) Upstream(ctx context.Context, asset string) (json.RawMessage, error) {
	var found []*servov1.UpstreamResult
	var keys []string
	for _, u := range t.Lease().GetUpstream() {
		keys = append(keys, u.GetAsset())
		if u.GetAsset() == asset {
			found = append(found, u)
		}
	}
	if len(found) > 1 {
		found = slices.DeleteFunc(found, func(u *servov1.UpstreamResult) bool { return u.GetPartition() != t.Lease().GetPartition() })
	}
	if len(found) != 1 {
		message := fmt.Sprintf("%s has no upstream %s", t.Lease().GetAsset(), asset) + suggest.DidYouMean(asset, keys)
		if slices.Contains(keys, asset) {
			message = fmt.Sprintf("%s has several partitions of upstream %s", t.Lease().GetAsset(), asset)
		}
		return nil, &Error{Code: codeConfig, Message: message, SuggestedAction: "declare it in the asset's upstream; read several with MappedResults"}
	}
	return t.result(ctx, found[0])
}

// result returns what the code of an upstream returned. If the upstream has an output, its result also
// names the version, see outputResult.
func (t *Task) result(ctx context.Context, u *servov1.UpstreamResult) (json.RawMessage, error) {
	data, err := t.wholeResult(ctx, u)
	return ownResult(data), err
}

// ownResult removes the version of an output from a result.
func ownResult(data json.RawMessage) json.RawMessage {
	if !bytes.Contains(data, []byte(`"servo_output"`)) {
		return data
	}
	var wrapped outputResult
	if json.Unmarshal(data, &wrapped) != nil || wrapped.Output == nil {
		return data
	}
	if len(wrapped.Result) == 0 {
		return json.RawMessage("null")
	}
	return wrapped.Result
}

// wholeResult returns an upstream's result, from the server if it was too large for the lease.
func (t *Task) wholeResult(ctx context.Context, u *servov1.UpstreamResult) (json.RawMessage, error) {
	if !u.GetOmitted() {
		return fromValue(u.GetResult()), nil
	}
	of := cmp.Or(u.GetRun(), t.Lease().GetRun()) // older servers do not send it
	request := &servov1.GetTaskRequest{Tenant: t.Lease().GetTenant(), Run: of, Task: u.GetTask()}
	ctx, span := t.worker.step(ctx, "load_inputs")
	task, err := read(ctx, t.worker.link, t.worker.tasks.GetTask, request)
	endSpan(span, err)
	if err != nil {
		return nil, fmt.Errorf("read the result of upstream %s: %w", u.GetAsset(), err)
	}
	return fromValue(task.GetResult()), nil
}

// mappedPage reads one page of the results that Mapped iterates over, for code outside of this process.
func (t *Task) mappedPage(ctx context.Context, asset, token string, size int32) (found []Upstream, next string, err error) {
	request := &servov1.ListUpstreamTasksRequest{
		Tenant: t.Lease().GetTenant(), Run: t.Lease().GetRun(), Task: t.Lease().GetTask(), PageSize: size, PageToken: token,
	}
	page, err := read(ctx, t.worker.link, t.worker.tasks.ListUpstreamTasks, request)
	if err != nil {
		return nil, "", fmt.Errorf("read the results of upstream %s: %w", asset, err)
	}
	for _, u := range page.GetTasks() {
		if u.GetAsset() == asset {
			found = append(found, Upstream{Run: t.Lease().GetRun(), Task: u.GetTask(), Asset: asset, Partition: u.GetPartition(), Result: ownResult(fromValue(u.GetResult()))})
		}
	}
	return found, page.GetNextPageToken(), nil
}

// Mapped reads the results of all tasks of an asset that the task has waited for, including
// fanned-out ones, page by page.
func (t *Task) Mapped(ctx context.Context, asset string) iter.Seq2[Upstream, error] {
	return func(yield func(Upstream, error) bool) {
		request := &servov1.ListUpstreamTasksRequest{
			Tenant: t.Lease().GetTenant(), Run: t.Lease().GetRun(), Task: t.Lease().GetTask(), PageSize: 100,
		}
		for found := false; ; {
			page, err := read(ctx, t.worker.link, t.worker.tasks.ListUpstreamTasks, request)
			if err != nil {
				yield(Upstream{}, fmt.Errorf("read the results of upstream %s: %w", asset, err))
				return
			}
			for _, u := range page.GetTasks() {
				if u.GetAsset() != asset {
					continue
				}
				found = true
				if !yield(Upstream{Run: t.Lease().GetRun(), Task: u.GetTask(), Asset: u.GetAsset(), Partition: u.GetPartition(), Result: ownResult(fromValue(u.GetResult()))}, nil) {
					return
				}
			}
			if request.PageToken = page.GetNextPageToken(); request.GetPageToken() != "" {
				continue
			}
			if !found && t.allFromOutside() {
				yield(Upstream{}, &Error{
					Code: run.CodeMissingInput, Message: fmt.Sprintf("no task of %s is part of this run: results of a fan-out are read in the run that has it", asset),
					SuggestedAction: "run the asset that fans out too: servo runs trigger --select +" + t.Lease().GetAsset(),
				})
			}
			return
		}
	}
}

// allFromOutside reports whether the task has upstreams and its run executes none of them: nothing was
// fanned out for it.
func (t *Task) allFromOutside() bool {
	upstream := t.Lease().GetUpstream()
	return len(upstream) > 0 && !slices.ContainsFunc(upstream, func(u *servov1.UpstreamResult) bool {
		return cmp.Or(u.GetRun(), t.Lease().GetRun()) == t.Lease().GetRun()
	})
}

// read makes a read-only call, and repeats it while the server is unavailable.
func read[Request, Response any](ctx context.Context, l *link, call func(context.Context, Request, ...grpc.CallOption) (Response, error), request Request) (Response, error) {
	wait := backoff{}
	for {
		response, err := call(ctx, request)
		if err == nil {
			return response, nil
		}
		if ctx.Err() != nil {
			return response, context.Cause(ctx)
		}
		if judge(err) != unknown {
			return response, refusal(problemOf(err))
		}
		if !wait.sleep(ctx, l.pauseAfter(err)) {
			return response, context.Cause(ctx)
		}
	}
}

// input is the task as code outside of this process receives it: on its standard input, or as the body
// of a call.
type input struct {
	Tenant     string          `json:"tenant"`
	Run        string          `json:"run"`
	Task       string          `json:"task"`
	Attempt    int32           `json:"attempt"`
	Token      int64           `json:"fencing_token"`
	Asset      string          `json:"asset"`
	Partition  string          `json:"partition"`
	Partitions []Partition     `json:"partitions,omitempty"` // of a declared partition or range, in order
	Pipeline   string          `json:"pipeline"`
	Parameters json.RawMessage `json:"parameters"`
	Upstream   []Upstream      `json:"upstream"`
	Cursor     string          `json:"cursor"`

	Config      string    `json:"config"`
	TriggerType string    `json:"trigger_type"`
	Slot        *string   `json:"slot"` // RFC 3339; null without a slot
	Interval    *Interval `json:"interval"`
}

// Interval is the data interval of a run, as text.
type Interval struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

// instant formats a time for commands and endpoints, "" if it is not set.
func instant(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format(time.RFC3339Nano)
}

// window fills in the slot and the data interval of the run.
func (in *input) window(l *servov1.Lease) {
	in.Config, in.TriggerType = l.GetConfig(), l.GetTriggerType()
	if l.GetSlot() != nil {
		slot := instant(l.GetSlot())
		in.Slot = &slot
	}
	if l.GetIntervalEnd() != nil {
		in.Interval = &Interval{Start: instant(l.GetIntervalStart()), End: instant(l.GetIntervalEnd())}
	}
}

// Input returns the JSON document for code outside of this process.
func (t *Task) Input(ctx context.Context) ([]byte, error) {
	l := t.Lease()
	in := input{
		Tenant: l.GetTenant(), Run: l.GetRun(), Task: l.GetTask(), Attempt: l.GetAttempt(), Token: l.GetFencingToken(),
		Asset: l.GetAsset(), Partition: l.GetPartition(),
		Pipeline: l.GetPipeline(), Parameters: t.Parameters(), Upstream: make([]Upstream, len(l.GetUpstream())), Cursor: t.Cursor(),
	}
	in.window(l)
	in.Partitions = PartitionsOf(l)
	for i, u := range l.GetUpstream() {
		result, err := t.result(ctx, u)
		if err != nil {
			return nil, err
		}
		in.Upstream[i] = Upstream{Run: cmp.Or(u.GetRun(), l.GetRun()), Task: u.GetTask(), Asset: u.GetAsset(), Partition: u.GetPartition(), Result: result}
	}
	return Marshal(in)
}
