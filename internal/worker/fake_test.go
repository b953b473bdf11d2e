package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// fake is a server in memory, reached without a network: what a worker may expect of a
// server, and what may go wrong on the way.
type fake struct {
	mu      sync.Mutex
	queue   []*servov1.Lease
	claims  map[string][]string // leases by claim
	leases  map[string]*fakeLease
	changed chan struct{}

	requests []proto.Message // every call that arrived
	inCall   map[string]bool // leases that a report is speaking of
	overlaps int             // how often two calls spoke of one lease

	// Faults: before a call is applied, and between its application and its answer.
	before func(request proto.Message) error
	after  func(request proto.Message) error
	refuse func(it *servov1.ReportItem) *servov1.Problem
	delay  func(request proto.Message) <-chan struct{} // the answer waits for it

	upstream []*servov1.UpstreamTask
	results  map[string]*structpb.Value // by run/task, for GetTask
}

type fakeLease struct {
	lease      *servov1.Lease
	state      string // DISPATCHED, RUNNING, then how it ended
	result     *structpb.Value
	failure    *servov1.Failure
	retryAfter time.Duration
	actions    []string
	log        string
	seqs       []int64
	cursor     string
	fanned     []*servov1.FanOut

	progress        []*servov1.Progress
	beats           int
	progressByBeats int
	lost, cancel    bool
}

func newFake() *fake {
	return &fake{
		claims: map[string][]string{}, leases: map[string]*fakeLease{}, changed: make(chan struct{}), inCall: map[string]bool{},
		results: map[string]*structpb.Value{},
	}
}

// add queues n tasks of an asset and returns their ids.
func (f *fake) add(n int, asset string, change ...func(*servov1.Lease)) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for range n {
		lease := &servov1.Lease{
			Lease: uuid.NewString(), Tenant: "acme", Run: uuid.NewString(), Task: uuid.NewString(), Attempt: 1, Asset: asset, Pipeline: "daily",
			Timeout: durationpb.New(time.Hour), Code: &servov1.Code{Kind: &servov1.Code_Go{Go: &servov1.GoCode{Handler: asset}}},
		}
		for _, c := range change {
			c(lease)
		}
		f.queue = append(f.queue, lease)
		ids = append(ids, lease.GetLease())
	}
	f.signal()
	return ids
}

func (f *fake) signal() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.signal()
}

// refuseCalls answers the calls that match with an error, until before is set again.
func (f *fake) refuseCalls(matches func(proto.Message) bool, code codes.Code, message string) {
	f.do(func() {
		f.before = func(m proto.Message) error {
			if matches(m) {
				return status.Error(code, message)
			}
			return nil
		}
	})
}

// wait waits until something holds.
func (f *fake) wait(t testing.TB, holds func() bool) {
	t.Helper()
	timeout := time.After(24 * time.Hour) // of the bubble's clock, in most tests
	for {
		f.mu.Lock()
		ok, changed := holds(), f.changed
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			require.Fail(t, "the condition was not met in time")
		}
	}
}

// lease is a copy of what the server knows of a lease.
func (f *fake) lease(id string) *fakeLease {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := *f.leases[id]
	return &l
}

// ended waits until these leases have ended.
func (f *fake) ended(t testing.TB, ids ...string) {
	t.Helper()
	f.wait(t, func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return f.leases[id] == nil || f.leases[id].open() })
	})
}

func (l *fakeLease) open() bool { return l.state == "DISPATCHED" || l.state == "RUNNING" }

// count is how many calls of a kind have arrived.
func (f *fake) count(is func(proto.Message) bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counted(is)
}

func (f *fake) counted(is func(proto.Message) bool) int {
	n := 0
	for _, r := range f.requests {
		if is(r) {
			n++
		}
	}
	return n
}

func isReport(m proto.Message) bool { _, ok := m.(*servov1.ReportRequest); return ok }

func isClaim(m proto.Message) bool { _, ok := m.(*servov1.ClaimRequest); return ok }

// Invoke implements grpc.ClientConnInterface.
func (f *fake) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	request := proto.Clone(args.(proto.Message))
	f.mu.Lock()
	f.requests = append(f.requests, request)
	before, after, delay := f.before, f.after, f.delay
	f.signal()
	f.mu.Unlock()
	if before != nil {
		if err := before(request); err != nil {
			return err
		}
	}
	var answer proto.Message
	var err error
	switch r := request.(type) {
	case *servov1.ClaimRequest:
		answer, err = f.claim(ctx, r)
	case *servov1.ReportRequest:
		answer, err = f.report(ctx, r, delay)
	case *servov1.HeartbeatRequest:
		answer = f.heartbeat(r)
	case *servov1.GetTaskRequest:
		answer = &servov1.Task{Id: r.GetTask(), Result: f.results[r.GetRun()+"/"+r.GetTask()]}
	case *servov1.ListUpstreamTasksRequest:
		answer = f.listUpstream(r)
	default:
		return status.Error(codes.Unimplemented, method)
	}
	if err == nil && after != nil {
		err = after(request)
	}
	if err == nil {
		proto.Merge(reply.(proto.Message), answer)
	}
	return err
}

// NewStream implements grpc.ClientConnInterface.
func (f *fake) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "streams")
}

func (f *fake) claim(ctx context.Context, r *servov1.ClaimRequest) (*servov1.ClaimResponse, error) {
	patience := time.NewTimer(r.GetWait().AsDuration())
	defer patience.Stop()
	for {
		f.mu.Lock()
		answer, changed := f.claimNow(r), f.changed
		f.mu.Unlock()
		if len(answer.GetLeases()) > 0 {
			return answer, nil
		}
		select {
		case <-changed:
		case <-patience.C:
			return answer, nil
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

func (f *fake) claimNow(r *servov1.ClaimRequest) *servov1.ClaimResponse {
	answer := &servov1.ClaimResponse{}
	for _, id := range f.claims[r.GetClaimId()] {
		if f.leases[id].open() {
			answer.Leases = append(answer.Leases, f.leases[id].lease)
		}
	}
	if len(answer.GetLeases()) > 0 {
		return answer
	}
	n := min(len(f.queue), int(r.GetMax()))
	for _, lease := range f.queue[:n] {
		l := &fakeLease{lease: lease, state: "DISPATCHED", cursor: lease.GetCursor()}
		if r.GetStart() {
			l.state, lease.Started = "RUNNING", true
		}
		f.leases[lease.GetLease()] = l
		f.claims[r.GetClaimId()] = append(f.claims[r.GetClaimId()], lease.GetLease())
		answer.Leases = append(answer.Leases, lease)
	}
	f.queue = f.queue[n:]
	if n > 0 {
		f.signal()
	}
	return answer
}

func (f *fake) report(ctx context.Context, r *servov1.ReportRequest, delay func(proto.Message) <-chan struct{}) (*servov1.ReportResponse, error) {
	speaking := map[string]bool{}
	f.mu.Lock()
	for _, it := range r.GetItems() {
		speaking[it.GetLease()] = true
	}
	for id := range speaking {
		if f.inCall[id] {
			f.overlaps++
		}
		f.inCall[id] = true
	}
	f.mu.Unlock()
	defer f.do(func() {
		for id := range speaking {
			delete(f.inCall, id)
		}
	})
	if delay != nil {
		if until := delay(r); until != nil {
			select {
			case <-until:
			case <-ctx.Done():
				return nil, status.FromContextError(ctx.Err()).Err()
			}
		}
	}
	answer := &servov1.ReportResponse{}
	f.do(func() {
		for _, it := range r.GetItems() {
			answer.Answers = append(answer.Answers, f.apply(it))
		}
	})
	return answer, nil
}

func problemAnswer(code fault.Code, message string) *servov1.ReportAnswer {
	return &servov1.ReportAnswer{Error: &servov1.Problem{Code: string(code), Message: message}}
}

func (f *fake) apply(it *servov1.ReportItem) *servov1.ReportAnswer {
	l := f.leases[it.GetLease()]
	if f.refuse != nil {
		if problem := f.refuse(it); problem != nil {
			return &servov1.ReportAnswer{Error: problem}
		}
	}
	what := fmt.Sprintf("%T", it.GetAction())[len("*servov1.ReportItem_"):]
	if l == nil || l.lost || !l.open() {
		if l != nil && l.state == what {
			return &servov1.ReportAnswer{Repeat: true}
		}
		return problemAnswer(fault.Stale, "the lease is over")
	}
	l.actions = append(l.actions, what)
	switch a := it.GetAction().(type) {
	case *servov1.ReportItem_Start:
		if l.cancel {
			return problemAnswer(fault.Conflict, "the run is being cancelled")
		}
		l.state = "RUNNING"
	case *servov1.ReportItem_Complete:
		if l.state != "RUNNING" {
			return problemAnswer(fault.Conflict, "cannot succeed: the state is DISPATCHED")
		}
		l.state, l.result = what, a.Complete.GetResult()
	case *servov1.ReportItem_Fail:
		l.state, l.failure, l.retryAfter = what, a.Fail.GetError(), a.Fail.GetRetryAfter().AsDuration()
	case *servov1.ReportItem_Yield:
		l.state, l.cursor = what, a.Yield.GetCursor()
	case *servov1.ReportItem_Advance:
		if l.cursor != a.Advance.GetExpected() {
			refused := problemAnswer(fault.Conflict, "cursor mismatch")
			refused.Error.Values = &structpb.Struct{Fields: map[string]*structpb.Value{"cursor": structpb.NewStringValue(l.cursor)}}
			return refused
		}
		l.cursor = a.Advance.GetNext()
	case *servov1.ReportItem_FanOut:
		l.fanned = append(l.fanned, a.FanOut)
		answer := &servov1.ReportAnswer{}
		for range a.FanOut.GetTasks() {
			answer.Added = append(answer.Added, uuid.NewString())
		}
		return answer
	case *servov1.ReportItem_Log:
		l.log += a.Log.GetText()
		l.seqs = append(l.seqs, a.Log.GetSeq())
	case *servov1.ReportItem_Progress:
		l.progress = append(l.progress, a.Progress)
	}
	return &servov1.ReportAnswer{}
}

func (f *fake) heartbeat(r *servov1.HeartbeatRequest) *servov1.HeartbeatResponse {
	answer := &servov1.HeartbeatResponse{}
	f.do(func() {
		for _, it := range r.GetLeases() {
			l := f.leases[it.GetLease()]
			held := l != nil && l.open() && !l.lost
			if held {
				l.beats++
				if it.GetProgress() != nil {
					l.progressByBeats++
				}
			}
			answer.Leases = append(answer.Leases, &servov1.HeartbeatAnswer{Held: held, ShouldCancel: held && l.cancel})
		}
	})
	return answer
}

func (f *fake) listUpstream(r *servov1.ListUpstreamTasksRequest) *servov1.ListUpstreamTasksResponse {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := 0
	if r.GetPageToken() != "" {
		_, _ = fmt.Sscan(r.GetPageToken(), &from)
	}
	to := min(from+int(r.GetPageSize()), len(f.upstream))
	answer := &servov1.ListUpstreamTasksResponse{Tasks: f.upstream[from:to]}
	if to < len(f.upstream) {
		answer.NextPageToken = fmt.Sprint(to)
	}
	return answer
}
