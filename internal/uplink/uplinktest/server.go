package uplinktest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Token is the one that the server takes at first.
const Token = "fgw1.plant.tablet-1.Zmlyc3Qtc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM"

// Server speaks the protocol of docs/protocol.md with tus 1.0.0's core and Resumable Uploads for HTTP, whose uploads devices
// may also create by themselves. It keeps everything in memory, and misbehaves where it is told to. It is an http.Handler.
type Server struct {
	mu       sync.Mutex
	token    string
	max      int64
	pending  bool
	dialects []string
	interim  Interim
	limits   string
	digests  bool
	grade    receipt.Grade
	received func(id string, from, to int64)
	items    map[string]*item
	uploads  map[string]*upload
	faults   []*Fault
	calls    []Call
	serial   int
	released chan struct{}
	once     sync.Once
}

// Call is one request that arrived.
type Call struct {
	Step   remote.Step
	Header http.Header
}

type item struct {
	id         string
	facts      wire.Reserve
	mediaID    string
	state      wire.AttachmentState
	generation int
	upload     *upload
	receipt    *receipt.Receipt
}

type upload struct {
	id     string
	item   *item
	data   []byte
	turn   int // grows with each request that is served; an append goes on only while it is its turn
	void   bool
	digest bool // void because of the digest

	created  bool   // by the device itself
	declared string // Repr-Digest at the creation
	done     bool   // completed by the device, where it was created by it
}

// complete reports whether every byte is there and, where that is asked for, the device said so.
func (u *upload) complete() bool {
	return u.done || !u.created && int64(len(u.data)) == u.item.facts.Length
}

// NewServer returns a server that has nothing.
func NewServer() *Server {
	return &Server{
		token: Token, grade: receipt.RegisteredDurable, items: map[string]*item{}, uploads: map[string]*upload{}, released: make(chan struct{}),
		dialects: []string{wire.DialectTus}, interim: Truly, limits: "min-size=0", digests: true,
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	step := stepOf(r)
	s.mu.Lock()
	s.calls = append(s.calls, Call{Step: step, Header: r.Header.Clone()})
	act := s.fault(step)
	s.mu.Unlock()
	if act == nil {
		s.route(w, r)
		return
	}
	act(s, w, r, http.HandlerFunc(s.route))
}

func stepOf(r *http.Request) remote.Step {
	if r.Method == http.MethodPost && r.URL.Path == "/v1/uploads" {
		return remote.StepReserve
	}
	return map[string]remote.Step{
		http.MethodOptions: remote.StepProbe,
		http.MethodPut:     remote.StepReserve, http.MethodHead: remote.StepOffset, http.MethodPatch: remote.StepAppend,
		http.MethodPost: remote.StepRegister, http.MethodDelete: remote.StepCancel,
		http.MethodGet: map[bool]remote.Step{true: remote.StepProbe, false: remote.StepVerify}[r.URL.Path == "/v1/status"],
	}[r.Method]
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(wire.HeaderProtocol, strconv.Itoa(wire.Protocol))
	s.mu.Lock()
	refused := r.URL.Path != "/v1/status" && r.Header.Get("Authorization") != "Bearer "+s.token
	s.mu.Unlock()
	if refused {
		problem(w, http.StatusUnauthorized, wire.CodeCredentials, "no valid token")
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, wire.Status{Service: wire.ServiceName, Protocol: wire.Protocol, Epoch: "e1"})
	})
	mux.HandleFunc("PUT /v1/attachments/{id}", s.reserve)
	mux.HandleFunc("GET /v1/attachments/{id}", s.show)
	mux.HandleFunc("POST /v1/attachments/{id}/registration", s.register)
	mux.HandleFunc("OPTIONS /v1/uploads", s.discover)
	mux.HandleFunc("POST /v1/uploads", s.create)
	mux.HandleFunc("HEAD /v1/uploads/{id}", s.offset)
	mux.HandleFunc("GET /v1/uploads/{id}", s.download)
	mux.HandleFunc("PATCH /v1/uploads/{id}", s.append)
	mux.HandleFunc("DELETE /v1/uploads/{id}", s.cancel)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		problem(w, http.StatusNotFound, wire.CodeNotFound, "no such route")
	})
	mux.ServeHTTP(w, r)
}

func (s *Server) reserve(w http.ResponseWriter, r *http.Request) {
	var facts wire.Reserve
	if err := json.NewDecoder(r.Body).Decode(&facts); err != nil || facts.Validate() != nil {
		problem(w, http.StatusBadRequest, wire.CodeInvalid, "not a reservation")
		return
	}
	id := r.PathValue("id")
	s.mu.Lock()
	defer s.mu.Unlock()
	it, known := s.items[id], true
	if it == nil {
		known = false
		it = &item{id: id, state: wire.StateReserved, mediaID: facts.ProposedMediaID}
		s.items[id] = it
		for _, other := range s.items {
			if other.state == wire.StateRegistered && other.facts.SHA256 == facts.SHA256 {
				it.state, it.mediaID = wire.StateVerified, other.mediaID
			}
		}
		if it.mediaID == "" {
			it.mediaID = s.name("media")
		}
	} else if it.facts.Length != facts.Length || it.facts.SHA256 != facts.SHA256 || it.facts.Role != facts.Role {
		problem(w, http.StatusConflict, wire.CodeIdentityConflict, "known with other facts")
		return
	}
	if it.state != wire.StateRegistered {
		it.facts = facts
	}
	if it.state == wire.StateReserved && (it.upload == nil || it.upload.void) {
		it.generation++
		it.upload = &upload{id: s.name("session"), item: it}
		s.uploads[it.upload.id] = it.upload
	}
	answer(w, map[bool]int{true: http.StatusOK, false: http.StatusCreated}[known], s.view(it))
}

func (s *Server) name(kind string) string {
	s.serial++
	return kind + "-" + strconv.Itoa(s.serial)
}

func (s *Server) view(it *item) wire.Attachment {
	a := wire.Attachment{AttachmentID: it.id, MediaID: it.mediaID, State: it.state, Generation: it.generation}
	switch it.state {
	case wire.StateReserved:
		if it.upload != nil && !it.upload.void {
			a.Upload = &wire.Upload{
				URL: "/v1/uploads/" + it.upload.id, Dialects: s.dialects,
				Offset: int64(len(it.upload.data)), MaxAppend: s.max,
			}
		}
	default:
		length := it.facts.Length
		a.Length, a.SHA256, a.Receipt = &length, it.facts.SHA256, s.graded(it.receipt)
	}
	return a
}

func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.items[r.PathValue("id")]
	switch {
	case it == nil:
		problem(w, http.StatusNotFound, wire.CodeNotFound, "no such attachment")
	case it.state == wire.StateReserved && it.upload != nil && it.upload.digest:
		problem(w, http.StatusUnprocessableEntity, wire.CodeDigestMismatch, "other bytes")
	default:
		answer(w, http.StatusOK, s.view(it))
	}
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var message wire.Register
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		problem(w, http.StatusBadRequest, wire.CodeInvalid, "not a registration")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.items[r.PathValue("id")]
	switch {
	case it == nil:
		problem(w, http.StatusNotFound, wire.CodeNotFound, "no such attachment")
	case it.state == wire.StateReserved:
		problem(w, http.StatusConflict, wire.CodeNotVerified, "bytes are missing")
	case s.pending:
		answer(w, http.StatusAccepted, map[string]string{"state": "parent_pending"})
	default:
		if it.receipt == nil {
			it.state = wire.StateRegistered
			it.receipt = &receipt.Receipt{
				AttachmentID: it.id, MediaID: it.mediaID, Parent: message.Parent, Length: it.facts.Length,
				SHA256: it.facts.SHA256, Grade: s.grade, RegisteredAt: time.Now().UTC(), Server: "uplinktest",
			}
		}
		answer(w, http.StatusOK, s.graded(it.receipt))
	}
}

// graded is a receipt with the grade that the server gives now.
func (s *Server) graded(r *receipt.Receipt) *receipt.Receipt {
	if r == nil {
		return nil
	}
	shown := *r
	shown.Grade = s.grade
	return &shown
}

func answer(w http.ResponseWriter, status int, message any) {
	w.Header().Set(wire.HeaderProtocol, strconv.Itoa(wire.Protocol))
	w.Header().Set("Content-Type", wire.ContentTypeJSON)
	w.WriteHeader(status)
	send(w, message)
}

func problem(w http.ResponseWriter, status int, code wire.Code, detail string) {
	w.Header().Set(wire.HeaderProtocol, strconv.Itoa(wire.Protocol))
	w.Header().Set("Content-Type", wire.ContentTypeProblem)
	w.WriteHeader(status)
	send(w, wire.Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: detail})
}

// send ignores a device that went away: it will ask again.
func send(w http.ResponseWriter, message any) {
	if err := json.NewEncoder(w).Encode(message); err != nil {
		return
	}
}

func base64Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return base64.StdEncoding.EncodeToString(sum[:])
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Calls returns the requests that arrived, in order.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Count is how many requests of a step arrived.
func (s *Server) Count(step remote.Step) int {
	n := 0
	for _, c := range s.Calls() {
		if c.Step == step {
			n++
		}
	}
	return n
}
