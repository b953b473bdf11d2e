package intercept

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/store"
)

// Replayed is the metadata key that marks the stored answer of an earlier call with the same
// idempotency key.
const Replayed = "idempotency-replayed"

// How long a call waits for the answer of a concurrent call with the same key, its twin.
const (
	twinPatience = 10 * time.Second
	twinPoll     = 100 * time.Millisecond
	twinRetry    = time.Second
)

// TakesKey reports whether a call accepts an idempotency key. All calls that change something do,
// except those of workers, whose leases identify repeats.
func TakesKey(m access.Method) bool { return m.Audited() }

// KeepsOwnKey reports whether a call stores its idempotency key itself. Calls that create runs store
// the key in the same batch, and answer a repeat with the current state of the run.
func KeepsOwnKey(method string) bool {
	return slices.Contains([]string{
		servov1.RunService_TriggerRun_FullMethodName, servov1.RunService_TriggerRuns_FullMethodName, servov1.RunService_RetryRun_FullMethodName, servov1.ConfigService_TriggerConfig_FullMethodName,
	}, method)
}

// inSteps reports whether a call takes several transactions. Each of them can be repeated; the
// answer is stored after the last one.
func inSteps(method string) bool {
	return method == servov1.SchedulerService_Tick_FullMethodName || method == servov1.AlertService_TestAlertChannel_FullMethodName
}

// idempotent runs a call with an idempotency key at most once. A repeat returns the stored answer.
func (c *Chain) idempotent(ctx context.Context, method string, req any, handler grpc.UnaryHandler) (any, error) {
	message, ok := req.(proto.Message)
	if !ok || !TakesKey(c.methods[method]) || KeepsOwnKey(method) {
		return handler(ctx, req)
	}
	key, err := IdempotencyKey(ctx)
	if err != nil || key == "" {
		if err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
	digest, err := digestOfCall(method, Caller(ctx).Actor, message)
	if err != nil {
		return nil, err
	}
	call := store.Call{
		Tenant: c.auditedTenant(ctx, Caller(ctx), tenantOf(req)), Key: key, Method: strings.TrimPrefix(method, "/servo.v1."), Digest: digest,
	}
	if answer, known, err := c.replay(ctx, method, call); known || err != nil {
		return answer, err
	}
	return c.run(ctx, method, call, req, handler)
}

// run runs a call without a stored answer, and stores its answer.
func (c *Chain) run(ctx context.Context, method string, call store.Call, req any, handler grpc.UnaryHandler) (any, error) {
	pending := c.store.CallTx(call)
	defer pending.Abandon(ctx) // after an error, a panic or a cancellation nothing remains
	inside := ctx
	if !inSteps(method) {
		inside = pending.With(ctx)
	}
	answer, err := handler(inside, req)
	if err == nil {
		var kept bool
		if kept, err = c.keep(ctx, pending, answer); kept {
			pending.Done()
			return answer, nil
		}
	}
	pending.Abandon(ctx)
	if pending.Duplicate() {
		return c.awaitTwin(ctx, method, call)
	}
	// A concurrent call with the same key may have succeeded, and so may a commit whose confirmation
	// was lost.
	if again, known, lost := c.replay(ctx, method, call); known && lost == nil {
		pending.Done()
		return again, nil
	} else if known {
		return nil, lost
	}
	return nil, err
}

// keep stores an answer without its secrets, in the transaction of the effect.
func (c *Chain) keep(ctx context.Context, pending *store.CallTx, answer any) (bool, error) {
	message, ok := answer.(proto.Message)
	if !ok {
		return false, fmt.Errorf("cannot store an answer of type %T", answer)
	}
	raw, err := proto.Marshal(WithoutSecrets(message))
	if err != nil {
		return false, err
	}
	kept, err := pending.Keep(ctx, raw)
	return kept && err == nil, err
}

// replay returns the stored answer of a key. If the key was used for another request, the error does
// not name that request.
func (c *Chain) replay(ctx context.Context, method string, call store.Call) (answer any, known bool, err error) {
	raw, same, known, err := c.store.AnsweredCall(ctx, call)
	switch {
	case err != nil || !known:
		return nil, false, err
	case !same:
		return nil, true, fault.New(fault.Conflict, "this idempotency key was used for another request", fault.Field("idempotency_key"),
			fault.Remedy("use a new key for each new request"))
	}
	message, err := answerOf(method)
	if err == nil {
		err = proto.Unmarshal(raw, message)
	}
	if err != nil {
		return nil, true, fmt.Errorf("read the stored answer of %s: %w", method, err)
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(Replayed, "true")) // a caller that has left reads none
	return message, true, nil
}

// awaitTwin waits for the answer of a running call with the same key. It holds no connection while
// it waits.
func (c *Chain) awaitTwin(ctx context.Context, method string, call store.Call) (any, error) {
	over := time.NewTimer(c.options.Timing.TwinPatience)
	defer over.Stop()
	poll := time.NewTicker(twinPoll)
	defer poll.Stop()
	for {
		if answer, known, err := c.replay(ctx, method, call); known || err != nil {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.options.Closing.Done():
			return nil, Stopping()
		case <-over.C:
			return nil, fault.New(fault.Conflict, "a request with this idempotency key is in progress or has just failed", fault.Field("idempotency_key"),
				fault.RetryAfter(twinRetry), fault.Remedy("repeat the same request with the same key"))
		case <-poll.C:
		}
	}
}

// digestOfCall returns the digest of a call and its caller: the same key of another caller is a
// different request.
func digestOfCall(method, actor string, req proto.Message) ([]byte, error) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(method), []byte(actor), raw} {
		_, _ = sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // a hash refuses nothing
		_, _ = sum.Write(part)
	}
	return sum.Sum(nil), nil
}

// answerOf returns an empty answer of a call.
func answerOf(method string) (proto.Message, error) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + name))
	if err != nil {
		return nil, err
	}
	of, ok := found.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is not a method", method)
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(of.Output().FullName())
	if err != nil {
		return nil, err
	}
	return kind.New().Interface(), nil
}

// WithoutSecrets returns a copy of a message without the fields that the contract marks with
// debug_redact.
func WithoutSecrets(message proto.Message) proto.Message {
	copied := proto.Clone(message)
	clearSecrets(copied.ProtoReflect())
	return copied
}

func clearSecrets(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case SecretField(field):
			m.Clear(field)
		case field.IsMap() && field.MapValue().Message() != nil:
			value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				clearSecrets(v.Message())
				return true
			})
		case field.IsList() && field.Message() != nil:
			for i := range value.List().Len() {
				clearSecrets(value.List().Get(i).Message())
			}
		case field.Message() != nil && !field.IsMap():
			clearSecrets(value.Message())
		}
		return true
	})
}

// SecretField reports whether a field is neither stored nor logged.
func SecretField(field protoreflect.FieldDescriptor) bool {
	options, ok := field.Options().(*descriptorpb.FieldOptions)
	return ok && options.GetDebugRedact()
}
