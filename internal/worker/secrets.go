package worker

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/data/secrets"
	"go.arco.dev/servo/internal/domain/quality"
	"go.arco.dev/servo/internal/domain/secret"
)

// Secrets reads the secrets that tasks may use.
type Secrets = secrets.Store

// redactor replaces the secrets that an attempt has read. It is safe for concurrent use.
type redactor struct {
	mu       sync.RWMutex
	forms    []string
	replacer *strings.Replacer // nil if the attempt has read none
}

// add hides a value from now on.
func (r *redactor) add(value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forms = append(r.forms, secret.Forms(value)...)
	pairs := make([]string, 0, 2*len(r.forms))
	for _, form := range r.forms {
		pairs = append(pairs, form, secret.Redacted)
	}
	r.replacer = strings.NewReplacer(pairs...)
}

// text returns a text without secrets.
func (r *redactor) text(text string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.replacer == nil {
		return text
	}
	return r.replacer.Replace(text)
}

// has reports whether a text contains a secret.
func (r *redactor) has(text string) bool { return r.text(text) != text }

// active reports whether there is anything to hide.
func (r *redactor) active() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.replacer != nil
}

// message removes secrets from all texts of a message, also from keys of objects.
func (r *redactor) message(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			r.object(field, value.Map())
		case field.IsList():
			list := value.List()
			for i := range list.Len() {
				if field.Message() != nil {
					r.message(list.Get(i).Message())
				} else if field.Kind() == protoreflect.StringKind {
					list.Set(i, protoreflect.ValueOfString(r.text(list.Get(i).String())))
				}
			}
		case field.Message() != nil:
			r.message(value.Message())
		case field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString(r.text(value.String())))
		}
		return true
	})
}

func (r *redactor) object(field protoreflect.FieldDescriptor, object protoreflect.Map) {
	type entry struct {
		key   protoreflect.MapKey
		value protoreflect.Value
	}
	var entries []entry
	object.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		entries = append(entries, entry{key, value})
		return true
	})
	for _, e := range entries {
		value := e.value
		if field.MapValue().Message() != nil {
			r.message(value.Message())
		} else if field.MapValue().Kind() == protoreflect.StringKind {
			value = protoreflect.ValueOfString(r.text(value.String()))
		}
		key := e.key
		if field.MapKey().Kind() == protoreflect.StringKind {
			if text := r.text(key.String()); text != key.String() {
				object.Clear(key)
				key = protoreflect.ValueOfString(text).MapKey()
			}
		}
		object.Set(key, value)
	}
}

// report removes secrets from a report. The lease is not a text of the task.
func (r *redactor) report(item *servov1.ReportItem) *servov1.ReportItem {
	clone := proto.CloneOf(item)
	lease := clone.GetLease()
	r.message(clone.ProtoReflect())
	clone.Lease = lease
	return clone
}

// err removes secrets from the text of an error, for reports and traces.
func (r *redactor) err(err error) error {
	if err == nil || !r.has(err.Error()) {
		return err
	}
	out := &Error{Code: codeUser}
	if coded, ok := errors.AsType[*Error](err); ok {
		*out = *coded
	}
	out.Message, out.SuggestedAction, out.Cause = r.text(err.Error()), r.text(out.SuggestedAction), nil
	return out
}

// Secret returns the value of a secret: provider:path[@version], or ${secret:…}. The value is kept out of
// the logs, results, errors and progress of the attempt. Each read is logged, with the path.
func (t *Task) Secret(ctx context.Context, reference string) (string, error) {
	r, err := secret.Parse(reference)
	if err != nil {
		return "", secretError(err)
	}
	return t.readSecret(ctx, r)
}

func (t *Task) readSecret(ctx context.Context, r secret.Ref) (string, error) {
	if t.worker.options.Secrets == nil {
		return "", &Error{Code: codeConfig, Message: "this worker has no secrets, and the task reads " + r.String(), SuggestedAction: "start it with --secrets, or set SERVO_SECRETS"}
	}
	value, err := t.worker.options.Secrets.Read(ctx, t.Lease().GetTenant(), t.worker.options.Pools, r)
	if err != nil {
		t.logger.Warn("secret refused", "secret", r.String(), "error", err)
		return "", secretError(err)
	}
	t.attempt.secrets.add(value)
	t.logger.Info("secret read", "secret", r.String())
	return value, nil
}

// expandSecrets replaces the references in a text of the manifest.
func (t *Task) expandSecrets(ctx context.Context, text string) (string, error) {
	expanded, err := secret.Expand(text, func(r secret.Ref) (string, error) { return t.readSecret(ctx, r) })
	if err != nil {
		return "", secretError(err)
	}
	return expanded, nil
}

// secretError is the failure of a task that cannot read a secret.
func secretError(err error) error {
	if _, coded := errors.AsType[*Error](err); coded {
		return err
	}
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	code := codeConfig
	switch f.Code {
	case fault.Forbidden:
		code = "AUTHORIZATION_FAILED"
	case fault.NotFound:
		code = "RESOURCE_NOT_FOUND"
	case fault.Unavailable:
		code = "SERVICE_UNAVAILABLE"
	default:
	}
	return &Error{Code: code, Message: f.Message, SuggestedAction: f.Violation.Remedy, Cause: err}
}

// cursorError is the failure of a task whose position contains a secret: it is stored, and redacted it
// would be another position.
func cursorError() error {
	return &Error{Code: codeUser, Message: "the cursor or a fan-out contains a secret", SuggestedAction: "store positions and payloads without secrets"}
}

// redactedChecks are the results of checks without secrets, for _metadata.json.
func (t *Task) redactedChecks(results []quality.Result) []quality.Result {
	redacted := slices.Clone(results)
	for i := range redacted {
		r := &redacted[i]
		r.Actual, r.Expected, r.Error = t.attempt.secrets.text(r.Actual), t.attempt.secrets.text(r.Expected), t.attempt.secrets.text(r.Error)
		r.Sample = slices.Clone(r.Sample)
		for k, row := range r.Sample {
			r.Sample[k] = json.RawMessage(t.attempt.secrets.text(string(row)))
		}
	}
	return redacted
}
