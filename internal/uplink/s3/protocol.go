package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// codes are the error codes (Amazon S3 API Reference, "Error responses", and those of other stores) by what they mean here.
// For one that is not listed the status speaks.
var codes = map[string]wire.Code{
	"AccessDenied":                       wire.CodeCredentials,
	"AccountProblem":                     wire.CodeCredentials,
	"AllAccessDisabled":                  wire.CodeCredentials,
	"ExpiredToken":                       wire.CodeCredentials,
	"InvalidAccessKeyId":                 wire.CodeCredentials,
	"InvalidSecurity":                    wire.CodeCredentials,
	"InvalidToken":                       wire.CodeCredentials,
	"NotSignedUp":                        wire.CodeCredentials,
	"RequestTimeTooSkewed":               wire.CodeCredentials,
	"SignatureDoesNotMatch":              wire.CodeCredentials,
	"TokenRefreshRequired":               wire.CodeCredentials,
	"XAdminUserNotFound":                 wire.CodeCredentials,
	"UnauthorizedAccess":                 wire.CodeCredentials,
	"XAmzContentSHA256Mismatch":          wire.CodeDigestMismatch,
	"XAmzContentChecksumMismatch":        wire.CodeDigestMismatch,
	"BadDigest":                          wire.CodeDigestMismatch,
	"EntityTooLarge":                     wire.CodeSizeLimit,
	"InvalidPart":                        wire.CodeOffsetMismatch,
	"InvalidPartOrder":                   wire.CodeOffsetMismatch,
	"NoSuchUpload":                       wire.CodeSessionGone,
	"NoSuchKey":                          wire.CodeNotFound,
	"InternalError":                      wire.CodeInternal,
	"IncompleteBody":                     wire.CodeInternal,
	"RequestTimeout":                     wire.CodeInternal,
	"SlowDown":                           wire.CodeShuttingDown,
	"SlowDownRead":                       wire.CodeShuttingDown,
	"SlowDownWrite":                      wire.CodeShuttingDown,
	"ServerBusy":                         wire.CodeShuttingDown,
	"Busy":                               wire.CodeShuttingDown,
	"ServiceUnavailable":                 wire.CodeShuttingDown,
	"TooManyRequests":                    wire.CodeTooMany,
	"QuotaExceeded":                      wire.CodeServerFull,
	"InsufficientCapacity":               wire.CodeServerFull,
	"XMinioStorageFull":                  wire.CodeServerFull,
	"AuthorizationHeaderMalformed":       remote.CodeSetup,
	"IllegalLocationConstraintException": remote.CodeSetup,
	"InvalidBucketName":                  remote.CodeSetup,
	"InvalidLocationConstraint":          remote.CodeSetup,
	"InvalidRegion":                      remote.CodeSetup,
	"NoSuchBucket":                       remote.CodeSetup,
	"NotImplemented":                     remote.CodeSetup,
	"PermanentRedirect":                  remote.CodeSetup,
	"TemporaryRedirect":                  remote.CodeSetup,
}

const (
	skewed = "RequestTimeTooSkewed"
	// codeWhole is what there is to say about ending a session that is one request: there is nothing to end.
	codeWhole = wire.CodeMethod
)

// Protocol is how a store's answers are understood.
func Protocol(s Store) *remote.Protocol {
	done := []int{http.StatusOK, http.StatusNoContent, http.StatusPartialContent}
	accepts := map[remote.Step][]int{}
	for _, step := range remote.Steps() {
		accepts[step] = done
	}
	return &remote.Protocol{
		Name: "s3", Ours: ours, Accepts: accepts, Problem: problem,
		Refusal: func(body []byte) bool {
			_, err := readRefusal(body)
			return err == nil
		},
		CheckCredential: func(text string) error {
			_, err := ParseCredential(text)
			return err
		},
		Probe: func(ctx context.Context, client *remote.Client) error { return probe(ctx, client, s) },
	}
}

// ours: a store marks its answers with the ID of the request, and says what went wrong in XML.
func ours(_ remote.Step, resp *http.Response) bool {
	return resp.Header.Get("X-Amz-Request-Id") != "" || strings.HasPrefix(resp.Header.Get("Content-Type"), "application/xml") ||
		strings.HasPrefix(resp.Header.Get("Server"), "AmazonS3")
}

// probe lists nothing of the bucket: unlike HEAD, whose refusals have no body, that says what is wrong.
func probe(ctx context.Context, client *remote.Client, s Store) error {
	_, err := call(ctx, client, remote.Operation{Step: remote.StepProbe}, newAPI(client, s).ListObjectsV2, &api.ListObjectsV2Input{
		Bucket: &s.Bucket, Prefix: aws.String(".fieldgw-probe/"), MaxKeys: aws.Int32(1),
	})
	return err
}

// problem reads a refusal.
func problem(_ *http.Response, body []byte) (wire.Code, string, error) {
	r, err := readRefusal(body)
	if err != nil {
		return "", "", err
	}
	return codes[r.Code], r.Code + ": " + r.Message, nil
}

// refusal is the part of a store's error that is shown; the others may repeat what was signed.
type refusal struct {
	XMLName xml.Name
	Code    string
	Message string
}

var errNoRefusal = errors.New("not an error of a store")

// readRefusal reads an XML document whose root is Error.
func readRefusal(body []byte) (refusal, error) {
	var r refusal
	if !bytes.Contains(body, []byte("<Error")) {
		return r, errNoRefusal
	}
	if err := xml.Unmarshal(body, &r); err != nil {
		return refusal{}, err
	}
	notName := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.'
	}
	if r.XMLName.Local != "Error" || r.Code == "" || len(r.Code) > 64 || strings.ContainsFunc(r.Code, notName) {
		return refusal{}, errNoRefusal
	}
	return r, nil
}

// judged gives a refusal of HEAD, which has no body, the meaning that it has everywhere in a store: what the credential may
// do is never one object's matter.
func judged(err error) error {
	e, ok := errors.AsType[*remote.Error](err)
	if !ok || e.Kind != remote.KindProblem || e.Problem != "" || e.Status != http.StatusForbidden && e.Status != http.StatusUnauthorized {
		return err
	}
	return refused(e.Step, wire.CodeCredentials, e.Status)
}

func refused(step remote.Step, code wire.Code, status int) *remote.Error {
	e := remote.Refused(step, code)
	e.Status = status
	return e
}

// isSkewed reports whether a request was refused for its time, or may have been: the refusal of a HEAD does not say.
func isSkewed(err error) bool {
	e, ok := errors.AsType[*remote.Error](err)
	return ok && e.Kind == remote.KindProblem &&
		(strings.HasPrefix(e.Detail, skewed) || e.Problem == "" && e.Detail == "" && e.Status == http.StatusForbidden)
}

func isGone(err error) bool {
	e, ok := errors.AsType[*remote.Error](err)
	return ok && e.Gone()
}

// isAbsent reports whether the store says that there is no such object; its status alone may mean a bucket or a key ID too.
func isAbsent(err error) bool {
	e, ok := errors.AsType[*remote.Error](err)
	return ok && e.Kind == remote.KindProblem && e.Problem == wire.CodeNotFound
}

func hasStatus(err error, status int) bool {
	e, ok := errors.AsType[*remote.Error](err)
	return ok && e.Kind == remote.KindProblem && e.Status == status
}

// conflict: under the key of this attachment there is something else.
func conflict(step remote.Step) *remote.Error {
	return refused(step, wire.CodeIdentityConflict, http.StatusPreconditionFailed)
}

// unknown makes a session that cannot be read one that is gone: it was another driver's.
func unknown(step remote.Step, err error) *remote.Error {
	e := refused(step, wire.CodeSessionGone, http.StatusGone)
	e.Err = err
	return e
}
