package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/push"
)

// post calls a URL with a JSON body and returns the JSON of the response. Errors are problems in the
// types of the worker.
func (i *Inbox) post(ctx context.Context, to string, body []byte) ([]byte, *servov1.Problem) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, problemOf(fault.InvalidArgument, "the callback has no usable URL")
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := i.client.Do(request)
	if err != nil {
		return nil, problemOf(fault.Unavailable, "the callback cannot be reached: "+withoutURL(err).Error())
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, problemOf(fault.Unavailable, "the callback's answer was cut short")
	}
	if response.StatusCode == http.StatusOK {
		return answer, nil
	}
	return nil, problemIn(response, answer)
}

// withoutURL removes the URL from an error: a reader of the log could report for the task with it.
func withoutURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}

// problemIn converts a refused callback to a problem. Forbidden or gone means that the lease is lost:
// the server ignores its reports.
func problemIn(response *http.Response, body []byte) *servov1.Problem {
	var doc struct{ Code, Message, Field, Remedy string }
	_ = json.Unmarshal(body, &doc) // without one, the status decides
	code := fault.Code(doc.Code)
	switch s := response.StatusCode; {
	case s == http.StatusUnauthorized || s == http.StatusForbidden || s == http.StatusNotFound || s == http.StatusGone:
		code = fault.Stale
	case s == http.StatusTooManyRequests || s >= http.StatusInternalServerError || s < http.StatusBadRequest:
		code = fault.Unavailable
	case code == "" && s == http.StatusConflict:
		code = fault.Conflict
	case code == "":
		code = fault.InvalidArgument
	}
	p := problemOf(code, doc.Message)
	p.Field, p.Remedy = doc.Field, doc.Remedy
	if p.GetMessage() == "" {
		p.Message = "the callback responded with " + response.Status
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		p.RetryAfter = durationpb.New(time.Duration(seconds) * time.Second)
	}
	return p
}

func problemOf(code fault.Code, message string) *servov1.Problem {
	return &servov1.Problem{Code: string(code), Message: message}
}

// asError returns the problem of a whole call as an error.
func asError(p *servov1.Problem) error {
	code := codes.InvalidArgument
	switch fault.Code(p.GetCode()) {
	case fault.Unavailable:
		code = codes.Unavailable
	case fault.Stale:
		code = codes.Aborted
	case fault.Conflict:
		code = codes.FailedPrecondition
	default:
	}
	st := status.New(code, p.GetMessage())
	if detailed, err := st.WithDetails(p); err == nil {
		st = detailed
	}
	return st.Err()
}

// urls returns the current callbacks of a lease.
func (i *Inbox) urls(lease string) (push.Callbacks, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	l, known := i.deliveries[lease]
	if !known {
		return push.Callbacks{}, false
	}
	return l.callbacks, true
}

// each calls a function for n leases, some concurrently.
func each(n int, do func(int)) {
	running := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for at := range n {
		running <- struct{}{}
		all.Go(func() {
			defer func() { <-running }()
			do(at)
		})
	}
	all.Wait()
}

// report sends the items of leases, each to its own URL.
func (i *Inbox) report(ctx context.Context, request *servov1.ReportRequest) (*servov1.ReportResponse, error) {
	var leases []string
	places := map[string][]int{}
	for place, item := range request.GetItems() {
		if _, known := places[item.GetLease()]; !known {
			leases = append(leases, item.GetLease())
		}
		places[item.GetLease()] = append(places[item.GetLease()], place)
	}
	answers := make([]*servov1.ReportAnswer, len(request.GetItems()))
	each(len(leases), func(at int) {
		lease := leases[at]
		items := make([]*servov1.ReportItem, 0, len(places[lease]))
		for _, place := range places[lease] {
			items = append(items, request.GetItems()[place])
		}
		for n, answer := range i.reportOne(ctx, lease, items) {
			answers[places[lease][n]] = answer
			i.recordEnd(lease, items[n], answer.GetError())
		}
	})
	for _, answer := range answers {
		if answer.GetError().GetCode() != string(fault.Unavailable) {
			return &servov1.ReportResponse{Answers: answers}, nil
		}
	}
	return nil, asError(answers[0].GetError()) // no item was processed: the whole call must be repeated
}

// reportOne sends the items of one lease. If they are refused as a whole, each is sent alone, so that
// only the invalid one is refused.
func (i *Inbox) reportOne(ctx context.Context, lease string, items []*servov1.ReportItem) []*servov1.ReportAnswer {
	answers, problem := i.send(ctx, lease, items)
	if problem == nil {
		return answers
	}
	splits := problem.GetCode() != string(fault.Unavailable) && problem.GetCode() != string(fault.Stale)
	answers = make([]*servov1.ReportAnswer, len(items))
	for n := range items {
		answers[n] = &servov1.ReportAnswer{Error: problem}
		if splits && len(items) > 1 {
			answers[n] = i.reportOne(ctx, lease, items[n:n+1])[0]
		}
	}
	return answers
}

func (i *Inbox) send(ctx context.Context, lease string, items []*servov1.ReportItem) ([]*servov1.ReportAnswer, *servov1.Problem) {
	urls, known := i.urls(lease)
	if !known {
		return nil, problemOf(fault.Stale, "unknown lease")
	}
	message := &servov1.ReportRequest{Items: make([]*servov1.ReportItem, len(items))}
	for n, item := range items {
		message.Items[n] = &servov1.ReportItem{Action: item.GetAction()} // the URL identifies the lease
	}
	response := &servov1.ReportResponse{}
	if problem := i.call(ctx, urls.Report, message, response); problem != nil {
		return nil, problem
	}
	if len(response.GetAnswers()) != len(items) {
		return nil, problemOf(fault.Internal, fmt.Sprintf("%d items have %d answers", len(items), len(response.GetAnswers())))
	}
	return response.GetAnswers(), nil
}

// call is post for messages of the contract.
func (i *Inbox) call(ctx context.Context, to string, request, response proto.Message) *servov1.Problem {
	body, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(request)
	if err != nil {
		return problemOf(fault.InvalidArgument, "cannot be encoded as JSON: "+err.Error())
	}
	answer, problem := i.post(ctx, to, body)
	if problem != nil {
		return problem
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(answer, response); err != nil {
		return problemOf(fault.Internal, "the callback's response does not match the contract")
	}
	return nil
}

// recordEnd records whether the end of a lease was accepted or can never be.
func (i *Inbox) recordEnd(lease string, item *servov1.ReportItem, problem *servov1.Problem) {
	last := item.GetComplete() != nil || item.GetFail() != nil || item.GetYield() != nil
	i.mu.Lock()
	defer i.mu.Unlock()
	l, known := i.deliveries[lease]
	if !known {
		return
	}
	switch code := fault.Code(problem.GetCode()); {
	case code == fault.Stale, last && problem == nil, last && l.replaced && code != fault.Unavailable:
		l.ended = true
	case last && code != fault.Unavailable:
		l.replaced = true // the worker reports another end in its place
	}
}

// heartbeat renews leases, each at its own URL, and stores the new URLs of the responses.
func (i *Inbox) heartbeat(ctx context.Context, request *servov1.HeartbeatRequest) (*servov1.HeartbeatResponse, error) {
	items := request.GetLeases()
	answers := make([]*servov1.HeartbeatAnswer, len(items))
	problems := make([]*servov1.Problem, len(items))
	each(len(items), func(at int) { answers[at], problems[at] = i.beat(ctx, items[at]) })
	reached := len(items) == 0
	for _, problem := range problems {
		reached = reached || problem == nil
	}
	if !reached {
		return nil, asError(problems[0])
	}
	return &servov1.HeartbeatResponse{Leases: answers}, nil
}

// beat renews one lease. If that fails for now, the lease counts as held: the next heartbeat decides.
func (i *Inbox) beat(ctx context.Context, item *servov1.HeartbeatItem) (*servov1.HeartbeatAnswer, *servov1.Problem) {
	urls, known := i.urls(item.GetLease())
	if !known {
		return &servov1.HeartbeatAnswer{}, nil
	}
	body, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(&servov1.HeartbeatItem{Progress: item.GetProgress()})
	if err != nil {
		body = []byte("{}") // the renewal matters more than the progress
	}
	answer, problem := i.post(ctx, urls.Heartbeat, body)
	var reply push.HeartbeatReply
	switch {
	case problem.GetCode() == string(fault.Stale):
		return &servov1.HeartbeatAnswer{}, nil
	case problem != nil:
		return &servov1.HeartbeatAnswer{Held: true}, problem
	case json.Unmarshal(answer, &reply) != nil:
		return &servov1.HeartbeatAnswer{Held: true}, problemOf(fault.Unavailable, "the callback's response does not match the contract")
	}
	if reply.Callbacks != nil {
		i.mu.Lock()
		if l, known := i.deliveries[item.GetLease()]; known {
			l.callbacks = *reply.Callbacks
		}
		i.mu.Unlock()
	}
	return &servov1.HeartbeatAnswer{Held: reply.Held, ShouldCancel: reply.ShouldCancel}, nil
}

// result reads a result that was too large for the envelope.
func (i *Inbox) result(ctx context.Context, request *servov1.GetTaskRequest) (*servov1.Task, error) {
	task := &servov1.UpstreamTask{}
	body := &servov1.GetTaskRequest{Run: request.GetRun(), Task: request.GetTask()}
	if problem := i.read(ctx, func(l *delivery) bool { return l.omitted[request.GetTask()] }, body, task); problem != nil {
		return nil, asError(problem)
	}
	return &servov1.Task{Result: task.GetResult()}, nil
}

// upstream reads a page of the upstream tasks of a task.
func (i *Inbox) upstream(ctx context.Context, request *servov1.ListUpstreamTasksRequest) (*servov1.ListUpstreamTasksResponse, error) {
	page := &servov1.ListUpstreamTasksResponse{}
	body := &servov1.ListUpstreamTasksRequest{PageSize: request.GetPageSize(), PageToken: request.GetPageToken()}
	if problem := i.read(ctx, func(l *delivery) bool { return l.lease.GetTask() == request.GetTask() }, body, page); problem != nil {
		return nil, asError(problem)
	}
	return page, nil
}

// read calls the upstream callback of a delivery that permits the request.
func (i *Inbox) read(ctx context.Context, may func(*delivery) bool, request, response proto.Message) *servov1.Problem {
	to := ""
	i.mu.Lock()
	for _, l := range i.deliveries {
		if !l.ended && may(l) && l.callbacks.Upstream != "" {
			to = l.callbacks.Upstream
			break
		}
	}
	i.mu.Unlock()
	if to == "" {
		p := problemOf(fault.InvalidArgument, "the result was too large for the envelope, which has no URL to read it from")
		p.Remedy = "store large data elsewhere and return a reference"
		return p
	}
	return i.call(ctx, to, request, response)
}
