package intercept

import "google.golang.org/protobuf/proto"

// Seal returns the token of a position in a list.
func Seal(secret []byte, req ListRequest, position string) (string, error) {
	list, err := digestOf(req)
	return seal(secret, list, position), err
}

// Unseal returns the position of a request's token.
func Unseal(secret []byte, req ListRequest) (string, error) {
	list, err := digestOf(req)
	if err != nil {
		return "", err
	}
	return unseal(secret, list, req.GetPageToken())
}

// Check checks a request, Rules does so by the contract alone, and SurelyValid reports whether the
// fast check accepts it.
func Check(req any) error                { return newValidator().check(req) }
func Rules(req proto.Message) error      { return newValidator().rules.Validate(req) }
func SurelyValid(req proto.Message) bool { return surelyValid(req) }

// Audited returns the subject and the request of an audit entry.
func Audited(req proto.Message) (subject, request string) {
	return subjectOf(req), string(auditJSON(req))
}
